"""Splits any table in text, Parquet or Arrow files; each shard also gets the means and ranges of all its columns.

The table need not fit into memory, because rows are processed one at a time. A spool, which consists of files on the
volume, stores each row with a random key. After the last row, the shards are written from the spool in the order of the
keys. `split.shuffle` draws the same keys from the seed, and therefore gives the same order.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from random import Random

from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_cluster.prepare.dataset import Source, Split, arrange
from paddle_cluster.prepare.errors import writing_to
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.input.packed import SUFFIXES
from paddle_cluster.prepare.sources.classes import warn_of_classes
from paddle_cluster.prepare.sources.columnar import ColumnarTable, find_columnar
from paddle_cluster.prepare.sources.label import LabelColumn
from paddle_cluster.prepare.sources.spool import Appender, LabelledRow, Spool
from paddle_cluster.prepare.sources.table import DelimitedTable, Table, warn_of_ids, warn_of_mixed
from paddle_cluster.prepare.split import Dealer, is_held_out, is_test_file
from paddle_cluster.prepare.values import Settings

TABLES, TEXTS = (".csv", ".tsv"), (".txt", ".data")
STATISTICS = "columns.json"


def read_csv(settings: Settings, scratch: Path) -> Split:
    """Split the rows of one or more tables into shards, and compute the statistics of the columns.

    Raises: MissingInputError: if there is no table.  DataError: if rows have different lengths, there are no rows, or
    the label is not a column.  VolumeError: if scratch is full.
    """
    with fetch(settings, scratch) as data:
        names, test_names, is_columnar = _files(data)
        make = ColumnarTable if is_columnar else DelimitedTable
        table = make(data, [*names, *test_names], settings)
        return _Writing(table, settings, scratch).split(set(test_names))


def _files(data: Input) -> tuple[list[str], list[str], bool]:
    """Return (names of training tables, names of test tables, whether they are Parquet or Arrow files).

    The name of a test table begins with `test.`.
    """
    if data.is_file:
        return data.names, [], bool(find_columnar(data, ()))
    kinds = [(name, PurePosixPath(PurePosixPath(name).name)) for name in data.names]
    plain = [(name, path.with_suffix("") if path.suffix in SUFFIXES else path) for name, path in kinds]
    found = next(
        (found for kind in (TABLES, TEXTS) if (found := [name for name, path in plain if path.suffix in kind])), []
    )
    columnar = find_columnar(data, [name for name in found if PurePosixPath(name).suffix in TABLES])
    found = columnar or found
    training = [name for name in found if not is_test_file(name)]
    if not training:
        raise MissingInputError(
            f"{data.path} has no table; it needs files *.csv, *.tsv, *.txt or *.data, or *.parquet, *.arrow or "
            "*.feather"
        )
    return training, [name for name in found if is_test_file(name)], bool(columnar)


class _Writing:
    """Reads the rows of a table and writes the files of the shards."""

    def __init__(self, table: Table, settings: Settings, scratch: Path) -> None:
        self._table = table
        self._settings = settings
        self._folder = scratch / "shards"
        self._label = LabelColumn(table, settings)
        self._skipped = {table.place_of("CSV_SKIP", name) for name in settings.csv_skip}
        if self._label.place in self._skipped:
            raise DataError(f"CSV_SKIP has {settings.csv_label}, the column of CSV_LABEL; remove it from CSV_SKIP")
        with writing_to(scratch):
            for folder in (self._folder, scratch / "training", scratch / "test"):
                folder.mkdir()
        self._training, self._test = Spool(scratch / "training"), Spool(scratch / "test")
        suffix = "tsv" if table.delimiter == "\t" else "csv"
        self._names = (f"train.{suffix}", f"test.{suffix}")

    def split(self, test_names: set[str]) -> Split:
        """Read all rows and write the shards.

        Args: test_names: the files of the test set; if empty, TEST_FRACTION of the rows form the test set.
        """
        draw = Random(self._settings.seed)
        encode = _Encoder(self._table.delimiter)
        for row in self._table.rows():
            taken = LabelledRow(encode(row.fields), self._label.class_of(row.fields))
            if row.name in test_names:
                self._test.add(0.0, taken)
            else:
                self._training.add(draw.random(), taken)
        self._label.decide()
        warn_of_mixed(self._table.columns)
        if self._label.place is not None:
            others = enumerate(self._table.columns)
            warn_of_ids([one for place, one in others if place not in {self._label.place, *self._skipped}])
        has_own = bool(test_names)
        training, test = self._count(has_own)
        if not training.total():
            raise DataError("the table has no training rows; give a table with rows")
        missing = {"", *self._settings.csv_missing}
        named = [(name, number) for name, number in self._label.classes.items() if name.strip() not in missing]
        warn_of_classes(*({name: part[number] for name, number in named} for part in (training, test)))
        self._settings.check_counts(training.total(), test.total())
        self._write(has_own, training, test)
        return self._describe(training.total(), test.total())

    def _rows(self, has_own: bool) -> Iterator[tuple[bool, LabelledRow]]:
        """Yield (whether the row is a test row, row) for all rows, in the order of their distribution to the shards."""
        fraction = self._settings.test_fraction
        for position, row in enumerate(self._training.in_order()):
            yield not has_own and is_held_out(position, fraction), self._dealt(row)
        for row in self._test.in_order():
            yield True, self._dealt(row)

    def _dealt(self, row: LabelledRow) -> LabelledRow:
        """Return the row with the class by which it is dealt; rows with numbers to predict have none."""
        return row if self._label.task == "classes" else LabelledRow(row.text, 0)

    def _count(self, has_own: bool) -> tuple[Counter[int], Counter[int]]:
        """Return the number of rows of each class in the training set and in the test set."""
        if not self._label.classes:
            held_out = 0 if has_own else math.floor(self._settings.test_fraction * self._training.count)
            return Counter({0: self._training.count - held_out}), Counter({0: held_out + self._test.count})
        counts = (Counter[int](), Counter[int]())
        for is_test, row in self._rows(has_own):
            counts[is_test][row.label] += 1
        return counts

    def _write(self, has_own: bool, training: Counter[int], test: Counter[int]) -> None:
        appender = Appender()
        count = self._settings.split_count
        # part p is file p // count of shard p % count; consecutive rows therefore go to different shards
        parts = range(count * self._settings.shard_files)
        files = [
            [str(self._file(False, part % count, part // count)) for part in parts],
            [str(self._file(True, shard)) for shard in range(self._test_shards if test.total() else 0)],
        ]
        ordered = [number for _, number in sorted(self._label.classes.items())] or [0]
        dealers = [
            Dealer({number: counts[number] for number in ordered}, len(files[kind]))
            for kind, counts in enumerate((training, test))
        ]
        if self._table.header is not None and self._settings.csv_header == "keep":
            first = _Encoder(self._table.delimiter)(self._table.header)
            for path in (*files[0], *files[1]):
                appender.add(path, first)
        for is_test, row in self._rows(has_own):
            appender.add(files[is_test][dealers[is_test].deal(row.label)], row.text)
        appender.flush()

    @property
    def _test_shards(self) -> int:
        return self._settings.split_count if self._settings.test_data == "split" else 1

    def _file(self, is_test: bool, shard: int, number: int = 0) -> Path:
        return self._folder / f"{'test' if is_test else 'train'}-{shard}-{number}"

    def _describe(self, training: int, test: int) -> Split:
        counts = range(self._settings.split_count), range(self._settings.shard_files)
        shards, common = arrange(
            self._names,
            [[self._file(False, shard, number) for number in counts[1]] for shard in counts[0]],
            [self._file(True, shard) for shard in range(self._test_shards if test else 0)],
            {STATISTICS: self._statistics(training, test)},
            self._settings,
        )
        facts = {"columns": len(self._table.columns), "delimiter": self._table.delimiter}
        return Split(training, test, shards, common, facts)

    def _statistics(self, training: int, test: int) -> bytes:
        """Return the content of columns.json; docs/data.md describes this file."""
        had = self._table.header is not None
        about = {
            "format": 1,
            "delimiter": self._table.delimiter,
            "header": "none" if not had else "kept" if self._settings.csv_header == "keep" else "dropped",
            "rows": training + test,
            "training": training,
            "test": test,
            "missing_words": list(self._settings.csv_missing),
            "columns": [self._describe_column(place) for place in range(len(self._table.columns))],
        }
        if self._label.place is not None:
            about |= {"label": self._table.columns[self._label.place].name, "task": self._label.task}
        return json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    def _describe_column(self, place: int) -> dict[str, object]:
        is_class = place == self._label.place and self._label.task == "classes"
        about = self._table.columns[place].describe(is_class=is_class)
        return {**about, "skipped": True} if place in self._skipped else about


class _Encoder:
    """Encodes a row by the csv module, as UTF-8 with a line end. The csv module quotes only fields that need quotes."""

    def __init__(self, delimiter: str) -> None:
        self._text = ""
        self._writer = csv.writer(self, delimiter=delimiter, lineterminator="\n")

    def write(self, text: str) -> None:
        self._text = text

    def __call__(self, fields: Sequence[str]) -> bytes:
        self._writer.writerow(fields)
        return self._text.encode()


CSV = Source("csv", read_csv, "input", test_fraction="1/10", named_example="table")

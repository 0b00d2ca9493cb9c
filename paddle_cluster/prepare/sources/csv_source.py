"""Splits any CSV or TSV table; each shard also gets the means and ranges of the columns of the whole table.

The table need not fit into memory, because rows are processed one at a time. A spool, which consists of files on the
volume, stores each row with a random key. After the last row, the shards are written from the spool in the order of the
keys. `split.shuffle` draws the same keys from the seed, and therefore gives the same order.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from random import Random

from paddle_cluster.prepare.dataset import Source, Split
from paddle_cluster.prepare.errors import InputError, InputMissingError, writing_to
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.input.packed import SUFFIXES
from paddle_cluster.prepare.limits import OBJECT_BYTES
from paddle_cluster.prepare.sources.columns import ColumnSummary, describe_all
from paddle_cluster.prepare.sources.spool import Appender, LabelledRow, Spool
from paddle_cluster.prepare.sources.table import DelimitedTable, warn_of_mixed
from paddle_cluster.prepare.split import file_names, is_held_out
from paddle_cluster.prepare.values import Settings

TABLES, TEXTS = (".csv", ".tsv"), (".txt", ".data")
STATISTICS = "columns.json"
CLASSES = 10_000  # maximum number of distinct labels


def read_csv(settings: Settings, scratch: Path) -> Split:
    """Split the rows of one or more tables into shards, and compute the statistics of the columns.

    Raises: InputMissingError: if there is no table.  InputError: if rows have different lengths, there are no rows, or
    the label is not a column.  OutputError: if scratch is full.
    """
    with fetch(settings, scratch) as data:
        names, test_names = _files(data)
        table = DelimitedTable(
            data, [*names, *test_names], settings.csv_delimiter, settings.csv_header, settings.data_encoding
        )
        return _Writing(table, settings, scratch).split(set(test_names))


def _files(data: Input) -> tuple[list[str], list[str]]:
    """Return (names of training tables, names of test tables); the name of a test table begins with `test.`."""
    if data.is_file:
        return data.names, []
    kinds = [(name, PurePosixPath(PurePosixPath(name).name)) for name in data.names]
    plain = [(name, path.with_suffix("") if path.suffix in SUFFIXES else path) for name, path in kinds]
    found = next(
        (found for kind in (TABLES, TEXTS) if (found := [name for name, path in plain if path.suffix in kind])), []
    )
    training = [name for name in found if not PurePosixPath(name).name.startswith("test.")]
    if not training:
        raise InputMissingError(f"{data.path} has no table; it needs files *.csv, *.tsv, *.txt or *.data")
    return training, [name for name in found if name not in training]


class _Writing:
    """Reads the rows of a table and writes the files of the shards."""

    def __init__(self, table: DelimitedTable, settings: Settings, scratch: Path) -> None:
        self._table = table
        self._settings = settings
        self._folder = scratch / "shards"
        self._label = _place_of(settings.csv_label, table.columns)
        self._classes: dict[str, int] = {}
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
            taken = LabelledRow(encode(row.fields), self._class_of(row.fields))
            if row.name in test_names:
                self._test.add(0.0, taken)
            else:
                self._training.add(draw.random(), taken)
        warn_of_mixed(self._table.columns)
        has_own = bool(test_names)
        training, test = self._count(has_own)
        if not training.total():
            raise InputError("the table has no training rows; give a table with rows")
        self._settings.check_counts(training.total(), test.total())
        self._write(has_own, training, test)
        return self._describe(training.total(), test.total())

    def _class_of(self, fields: Sequence[str]) -> int:
        if self._label is None:
            return 0
        label = fields[self._label]
        if label not in self._classes:
            self._table.memory.take(len(label) + OBJECT_BYTES, f"the values of CSV_LABEL={self._settings.csv_label}")
        number = self._classes.setdefault(label, len(self._classes))
        if number >= CLASSES:
            raise InputError(
                f"the column CSV_LABEL={self._settings.csv_label} has more than {CLASSES} values; unset CSV_LABEL, "
                "because a column that does not name classes needs no even distribution"
            )
        return number

    def _rows(self, has_own: bool) -> Iterator[tuple[bool, LabelledRow]]:
        """Yield (whether the row is a test row, row) for all rows, in the order of their distribution to the shards."""
        fraction = self._settings.test_fraction
        for position, row in enumerate(self._training.in_order()):
            yield not has_own and is_held_out(position, fraction), row
        for row in self._test.as_they_came():
            yield True, row

    def _count(self, has_own: bool) -> tuple[Counter[int], Counter[int]]:
        """Return the number of rows of each class in the training set and in the test set."""
        if self._label is None:
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
        dealers = [_Dealer(counts, self._classes, len(files[kind])) for kind, counts in enumerate((training, test))]
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
        names, is_whole = self._names, self._settings.test_data == "whole"
        training_names = file_names(names[0], self._settings.shard_files)
        shards: list[dict[str, bytes | Path]] = [
            {name: self._file(False, shard, number) for number, name in enumerate(training_names)}
            for shard in range(self._settings.split_count)
        ]
        common: dict[str, bytes | Path] = {"train.list": "".join(f"data/{one}\n" for one in training_names).encode()}
        if test:
            common["test.list"] = f"data/{names[1]}\n".encode()
            if is_whole:
                common[names[1]] = self._file(True, 0)
        for shard, files in enumerate(shards if test and not is_whole else ()):
            files[names[1]] = self._file(True, shard)
        common[STATISTICS] = self._statistics(training, test)
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
            "columns": describe_all(self._table.columns),
        }
        return json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class _Dealer:
    """Distributes rows to shards like `split.deal`, but needs only the number of rows of each class."""

    def __init__(self, counts: Mapping[int, int], classes: Mapping[str, int], shards: int) -> None:
        ordered = [number for _, number in sorted(classes.items())] or [0]
        begins = [0]
        for number in ordered:
            begins.append(begins[-1] + counts.get(number, 0))
        self._next = {number: begin for number, (begin, _) in zip(ordered, pairwise(begins), strict=True)}
        self._shards = shards

    def deal(self, label: int) -> int:
        """Return the shard for the next row of a class."""
        card = self._next[label]
        self._next[label] = card + 1
        return card % self._shards


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


def _place_of(label: str, columns: Sequence[ColumnSummary]) -> int | None:
    """Return the position of the column that CSV_LABEL names, or whose number (from 1) is the value of CSV_LABEL."""
    if not label:
        return None
    names = [column.name for column in columns]
    if label in names:
        return names.index(label)
    if label.isascii() and label.isdigit() and 1 <= int(label[:9]) <= len(names):
        return int(label) - 1
    raise InputError(f"CSV_LABEL is {label!r}, which is no column; name one of {', '.join(names)[:400]}, or its number")


CSV = Source("csv", read_csv, "input", test_fraction="1/10")

"""Reads the rows of Parquet and Arrow tables as rows of text, which each source treats as those of a CSV file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any

from paddle_base.columnar.package import load_pyarrow
from paddle_base.columnar.tables import SUFFIXES, Batch, TableFile, is_table, open_table
from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.limits import LINE_BYTES
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.sources.columns import ColumnSummary
from paddle_cluster.prepare.sources.table import Table, TableRow, list_names
from paddle_cluster.prepare.values import Settings

BATCH_ROWS = 4096  # rows of which the fields are held at a time
PIECE_BYTES = 16 << 20  # of the texts of several rows that are held at a time, with at most one more row


def find_columnar(data: Input, delimited: Sequence[str]) -> list[str]:
    """Return the names of the Parquet and Arrow tables of an input. For a single file, its first bytes tell.

    Args: delimited: the names of the tables in text.
    Raises: DataError: if the input has tables of both kinds.
    """
    if data.is_file:
        with data.open_packed(data.names[0]) as file:
            return list(data.names) if is_table(file) else []
    found = [name for name in data.names if PurePosixPath(name).suffix in SUFFIXES]
    if found and delimited:
        raise DataError(
            f"{data.path} has tables in text and Parquet or Arrow tables, such as {delimited[0]} and {found[0]}; name "
            "those of one kind by a pattern, such as DATA_PATH='data/*.parquet'"
        )
    return found


class ColumnarTable(Table):
    """The rows of Parquet and Arrow files. A null is an empty field, and a boolean is 0 or 1.

    Args: data: the input; its first file defines the columns.  names: the files.  settings: those that begin with CSV_.
    only: the settings, by their names, whose columns are read; None: all columns are read.
    """

    def __init__(
        self, data: Input, names: Sequence[str], settings: Settings, only: Collection[str] | None = None
    ) -> None:
        self._data, self._names = data, names
        self.memory = data.memory
        self.delimiter = settings.csv_delimiter or ","
        with closing(self._open(names[0])) as table:
            self.header = list(table.names)
        self.columns = [ColumnSummary(name, data.memory, settings.csv_missing) for name in self.header]
        named = {"CSV_LABEL": [settings.csv_label] * bool(settings.csv_label), "CSV_TEXT": settings.csv_text}
        if only is None:
            self._read = set(self.header)
        else:
            self._read = {self.header[self.place_of(option, one)] for option in only for one in named[option]}
        self._skipped = {self.header[self.place_of("CSV_SKIP", one)] for one in settings.csv_skip}
        self._is_part = only is not None

    def _explain(self, given: str, names: Sequence[str], numbers: str) -> str:
        return list_names(given, names, self._names[0], numbers)

    def _open(self, name: str) -> TableFile:
        return open_table(self._data.open_packed(name), name, self.memory.limit)

    def rows(self) -> Iterator[TableRow]:
        """Yield all rows (see `Table`). A field of a column that is not read is empty."""
        for name in self._names:
            with closing(self._open(name)) as table:
                wanted = self._choose(table)
                empty = [""] * len(self.columns)
                places = [self.columns.index(column) for column in self.columns if column.name in wanted]
                for batch in table.batches([self.columns[place].name for place in places], BATCH_ROWS):
                    for row in self._rows_of(table, batch, places, empty):
                        for place in places:
                            self.columns[place].add(row.fields[place], name, row.line, row.unit)
                        yield row

    def _choose(self, table: TableFile) -> set[str]:
        """Return the names of the columns to read of a file.

        Raises: DataError: if a column is absent, has no text or number, or is only in this file.
        """
        chosen = set()
        for name in self.header or ():
            if name not in self._read:
                continue
            kind = table.kind(name)
            if _is_written(kind):
                chosen.add(name)
            elif name not in self._skipped:
                nested = "nested" if load_pyarrow("types").is_nested(kind) else "no text or number"
                raise DataError(
                    f"{table.name}: column {name!r} is {nested} (its type is {kind}); leave it out by CSV_SKIP={name}"
                )
            elif table.name == self._names[0]:
                say(f"{table.name}: column {name!r} of CSV_SKIP is of type {kind}: its fields in the shards are empty")
        more = [name for name in table.names if name not in (self.header or ())]
        if more and not self._is_part:
            raise DataError(
                f"{table.name} has a column {more[0]!r}, and {self._names[0]} has none; give all files the same columns"
            )
        return chosen

    def _rows_of(
        self, table: TableFile, batch: Batch, places: Sequence[int], empty: Sequence[str]
    ) -> Iterator[TableRow]:
        unit = f"{table.part} {batch.group} row"
        for first, last in _find_pieces(batch):
            texts = []
            for place, array in zip(places, batch.columns, strict=True):
                try:
                    texts.append(_to_texts(array.slice(first, last - first)))
                except (load_pyarrow().ArrowException, UnicodeDecodeError) as error:
                    what = f"{table.place(batch.group)}: column {self.columns[place].name!r}"
                    raise DataError(f"{what} cannot be written as text: {error}; write another type") from error
            for number, fields in enumerate(zip(*texts, strict=True), batch.first + first):
                row = list(empty)
                size = 0
                for place, field in zip(places, fields, strict=True):
                    row[place] = field
                    size += len(field)
                found = TableRow(table.name, number, row, unit)
                self._check(found, size)
                yield found

    def _check(self, row: TableRow, size: int) -> None:
        self._data.disk.take(size, row.name)
        if size > LINE_BYTES:
            raise DataError(f"{row.place} has more than {LINE_BYTES} characters; leave the row out, or cut it")
        for column, field in zip(self.columns, row.fields, strict=True):
            if "\0" in field:
                raise DataError(f"{row.place}: column {column.name!r} has a zero byte; remove it from the text")


def _is_written(kind: Any) -> bool:
    """Return whether the values of a type are written as text."""
    types = load_pyarrow("types")
    if types.is_dictionary(kind):
        return _is_written(kind.value_type)
    tests = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null, types.is_string,
        types.is_large_string, types.is_string_view, types.is_date, types.is_timestamp, types.is_time,
        types.is_duration,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _find_pieces(batch: Batch) -> Iterator[tuple[int, int]]:
    """Yield the first and last row of pieces of a batch, whose texts have PIECE_BYTES together.

    A text that occurs once in a file may stand in many rows.
    """
    lengths = [found for array in batch.columns if (found := _measure_texts(array)) is not None]
    first, size = 0, 0
    for row, sizes in enumerate(zip(*lengths, strict=True)):
        size += sum(sizes)
        if size > PIECE_BYTES:
            yield first, row + 1
            first, size = row + 1, 0
    if first < batch.rows:
        yield first, batch.rows


def _measure_texts(array: Any) -> Sequence[int] | None:
    """Return the bytes of each text of a column; None for columns of other types."""
    types = load_pyarrow("types")
    if types.is_dictionary(array.type):
        inner = _measure_texts(array.dictionary)
        return None if inner is None else [0 if one is None else inner[one] for one in array.indices.to_pylist()]
    if types.is_string_view(array.type):  # a view has 16 bytes, of which the first four are its length
        words = memoryview(array.buffers()[1]).cast("B").cast("i")[4 * array.offset : 4 * (array.offset + len(array))]
        return words[::4].tolist()
    if types.is_string(array.type) or types.is_large_string(array.type):
        return [one or 0 for one in load_pyarrow("compute").binary_length(array).to_pylist()]
    return None


def _to_texts(array: Any) -> list[str]:
    """Return the values of a column as texts; a null is empty."""
    arrow, types = load_pyarrow(), load_pyarrow("types")
    kind = array.type
    if types.is_null(kind):
        return [""] * len(array)
    if types.is_dictionary(kind):
        values = _to_texts(array.dictionary)
        return ["" if one is None else values[one] for one in array.indices.to_pylist()]
    if types.is_boolean(kind):
        array = array.cast(arrow.int8())
    elif types.is_float16(kind):
        array = array.cast(arrow.float32())
    elif types.is_timestamp(kind) and kind.tz is not None:  # the time of UTC, because a zone may not be known here
        array = array.cast(arrow.timestamp(kind.unit))
    elif types.is_duration(kind):
        array = array.cast(arrow.int64())
    return [one or "" for one in array.cast(arrow.string()).to_pylist()]

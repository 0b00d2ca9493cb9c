"""Reads CSV and TSV tables: finds the delimiter and a header line, and reads the rows."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from paddle_cluster.prepare.errors import InputError
from paddle_cluster.prepare.input.inputs import Input, decode
from paddle_cluster.prepare.limits import LINE_BYTES, Meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.sources.columns import ColumnSummary, read_number

DELIMITERS = ("\t", ";", "|", ",")  # delimiters to try
COLUMNS = 16_384  # maximum number of columns, as in spreadsheets
SAMPLE_BYTES, SAMPLE_LINES = 1 << 16, 100  # part of the first file that is used to find the delimiter
SHOWN = 60  # maximum number of characters of a row in a message


class TableRow(NamedTuple):
    """One row: its file, its first line and its fields."""

    name: str
    line: int
    fields: list[str]

    @property
    def place(self) -> str:
        """The file and the line of the row, for messages."""
        return f"{self.name} line {self.line}"

    @property
    def shown(self) -> str:
        """The beginning of the fields, for messages."""
        return repr(", ".join(self.fields)[:SHOWN])


class DelimitedTable:
    """The rows of all files, which must have the same columns.

    Args: data: the input; its first file defines the columns.  delimiter: one character, or "" to find it.
    header: the value of CSV_HEADER (auto, keep, drop or none).
    """

    def __init__(self, data: Input, names: Sequence[str], delimiter: str, header: str, encoding: str) -> None:
        self._data = data
        self._names = names
        self.memory = data.memory
        self._encoding = encoding
        self.delimiter = delimiter or find_delimiter(_first_lines(data, names[0], encoding))
        begin = list(itertools.islice(self._rows_of(names[0], data.disk.fresh()), 2))
        if not begin:
            raise InputError(f"{names[0]} has no rows; remove it, or give another file")
        self._first = begin[0]
        has_header = header in ("keep", "drop") or (header == "auto" and _is_header(begin))
        if header == "auto" and len(begin) == 1 and _are_names(begin[0]):
            raise InputError(
                f"{names[0]} has a header line and no rows: {self._first.shown}; give a table with rows, or set "
                "CSV_HEADER=none if that line is a row"
            )
        self.header = self._first.fields if has_header else None
        if header == "auto":
            what = "a header and dropped" if has_header else "a row"
            say(f"{self._first.place} is taken for {what}: {self._first.shown}; CSV_HEADER changes this")
        self.columns = [ColumnSummary(name, data.memory) for name in self.header or _numbered(len(self._first.fields))]

    def rows(self) -> Iterator[TableRow]:
        """Yield all rows except headers, after adding their fields to the statistics of the columns.

        Raises: InputError: if a row has more or fewer columns than the first row, or the file is not a table.
        """
        for name in self._names:
            for number, row in enumerate(self._rows_of(name)):
                if len(row.fields) != len(self.columns):
                    raise InputError(
                        f"{row.place}: {len(row.fields)} columns instead of {len(self.columns)} as in "
                        f"{self._first.place}, with {self.delimiter!r} between them: {row.shown}; "
                        "correct it, or set CSV_DELIMITER"
                    )
                if number == 0 and row.fields == self.header:
                    continue
                if number == 0 and name != self._names[0]:
                    self._require_no_header(row)
                for column, field in zip(self.columns, row.fields, strict=True):
                    column.add(field, name, row.line)
                yield row

    def _require_no_header(self, row: TableRow) -> None:
        """Reject a file whose first row has texts in all columns that held only numbers in earlier files."""
        numbers = [field for column, field in zip(self.columns, row.fields, strict=True) if column.is_number]
        if numbers and all(field.strip() and read_number(field) is None for field in numbers):
            raise InputError(
                f"{row.place} looks like a header, but {self._first.name} has another header: {row.shown}; give "
                "all files the same header, or none"
            )

    def _rows_of(self, name: str, disk: Meter | None = None) -> Iterator[TableRow]:
        codec = self._data.find_encoding(name) if self._encoding == "auto" else self._encoding
        lines = _Lines(self._data.raw_lines(name, disk), name, codec)
        csv.field_size_limit(LINE_BYTES)
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            lines.begin_row()
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise InputError(
                    f"{name} line {lines.first}: {error}; quote such fields, and double the quotes in them"
                ) from error
            if fields is None:
                return
            if len(fields) > COLUMNS:
                raise InputError(f"{name} line {lines.first}: it has more than {COLUMNS} columns; set CSV_DELIMITER")
            if fields:
                yield TableRow(name, lines.first, fields)


class _Lines:
    """Gives the lines of a file to the csv module, which requests more lines while a quoted field continues."""

    def __init__(self, lines: Iterator[bytes], name: str, codec: str) -> None:
        self._lines = lines
        self._name = name
        self._codec = codec
        self._held = 0
        self.number = 0
        self.first = 1

    def begin_row(self) -> None:
        self._held = 0
        self.first = self.number + 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        self._held += len(line)
        if self._held > LINE_BYTES:
            raise InputError(
                f"{self._name} line {self.first}: the row is longer than {LINE_BYTES} bytes; look for a quote that is "
                "not closed"
            )
        if b"\0" in line:
            raise InputError(f"{self._name} line {self.number}: it has a zero byte; save the table as UTF-8 text")
        return decode(line, self._codec, self._name, self.number)


def _first_lines(data: Input, name: str, encoding: str) -> list[str]:
    """Return the first lines of a file, from which the delimiter can be found."""
    codec = data.find_encoding(name) if encoding == "auto" else encoding
    found: list[str] = []
    size = 0
    for number, line in enumerate(data.raw_lines(name, data.disk.fresh()), start=1):
        found.append(decode(line, codec, name, number))
        size += len(line)
        if size > SAMPLE_BYTES or number == SAMPLE_LINES:
            break
    return found


def find_delimiter(lines: Sequence[str]) -> str:
    """Return the first of DELIMITERS that splits all rows into an equal number of columns, at least two.

    The comma is tried last, because commas also occur in texts and numbers, and all rows may have equally many commas
    by chance. If no delimiter splits all rows equally, the result is the delimiter that splits the first row into the
    most columns. The error for the first row with another number of columns then shows the problem.
    """
    most, best = 1, ","
    csv.field_size_limit(LINE_BYTES)
    for delimiter in DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        counts = {len(row) for row in (rows[:-1] if len(rows) > 2 else rows)}  # the last row may be incomplete
        if len(counts) == 1 and max(counts) > 1:
            return delimiter
        if rows and len(rows[0]) > most:
            most, best = len(rows[0]), delimiter
    return best


def _is_header(rows: Sequence[TableRow]) -> bool:
    """Return whether the first row is a header: it has distinct texts and no number, and the next row has a number."""
    if len(rows) < 2 or not _are_names(rows[0]):
        return False
    return any(read_number(field) is not None for field in rows[1].fields)


def _are_names(row: TableRow) -> bool:
    names = [field.strip() for field in row.fields]
    if len(set(names)) < len(names) or not all(names):
        return False
    return all(read_number(name) is None for name in names)


def _numbered(count: int) -> list[str]:
    return [f"column_{number}" for number in range(1, count + 1)]


def warn_of_mixed(columns: Sequence[ColumnSummary]) -> None:
    """Log a warning for each column in which most values, but not all, are numbers; trainers treat it as text."""
    for column in columns:
        if column.numbers.count > column.others > 0 and column.first_other is not None:
            name, line, field = column.first_other
            say(
                f"WARNING: column {column.name!r} has {column.numbers.count} numbers and {column.others} other values, "
                f"the first {field[:SHOWN]!r} in {name} line {line}: the column counts as text"
            )

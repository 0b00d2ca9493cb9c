"""Reads CSV and TSV tables: finds the delimiter and a header line, and reads the rows."""

from __future__ import annotations

import csv
import difflib
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.input.inputs import Input, decode
from paddle_cluster.prepare.limits import LINE_BYTES, Meter
from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.sources.columns import ColumnSummary, read_number
from paddle_cluster.prepare.values import Settings

DELIMITERS = ("\t", ";", "|", ",")  # delimiters to try
COLUMNS = 16_384  # maximum number of columns, as in spreadsheets
SAMPLE_BYTES, SAMPLE_LINES = 1 << 16, 100  # part of the first file that is used to find the delimiter
LISTED = 400  # maximum number of characters of the names of columns in a message
SHOWN = 60  # maximum number of characters of a row in a message


class TableRow(NamedTuple):
    """One row: its file, the number of its first line or of the row, its fields, and what the number counts."""

    name: str
    line: int
    fields: Sequence[str]
    unit: str = "line"

    @property
    def place(self) -> str:
        """The file and the line of the row, for messages."""
        return f"{self.name} {self.unit} {self.line}"

    @property
    def shown(self) -> str:
        """The beginning of the fields, for messages."""
        return repr(", ".join(self.fields)[:SHOWN])


class Table:
    """The rows of all files, which must have the same columns.

    Attributes: memory: counts the bytes that are held in memory.  delimiter: between the fields of the shards.  header:
    the names of the columns, or None.  columns: their statistics.
    """

    memory: Meter
    delimiter: str
    header: Sequence[str] | None
    columns: Sequence[ColumnSummary]

    def place_of(self, option: str, given: str) -> int:
        """Return the position of the column that a setting gives by its name, or by its number from 1.

        Args: option: the name of the setting, for messages.
        Raises: DataError: if there is no such column; the message names the columns, and says what line 1 is.
        """
        names = [column.name for column in self.columns]
        for known in (names, [name.strip() for name in names]):
            if given in known:
                return known.index(given)
        if given.isascii() and given.isdigit() and 1 <= int(given[:9]) <= len(names):
            return int(given) - 1
        numbers = f"a number from 1 to {len(names)}" if len(names) > 1 else "1"
        raise DataError(f"{option} is {given!r}, which is no column{self._explain(given, names, numbers)}")

    def _explain(self, given: str, names: Sequence[str], numbers: str) -> str:
        """Return the rest of a message about a column that does not exist. Args: numbers: those that can be given."""
        raise NotImplementedError

    def rows(self) -> Iterator[TableRow]:
        """Yield all rows except headers, after adding their fields to the statistics of the columns.

        Raises: DataError: if a row has other columns than the first row, or the file is not a table.
        """
        raise NotImplementedError


def list_names(given: str, names: Sequence[str], where: str, numbers: str) -> str:
    """Return the rest of a message about a column that does not exist: a similar name, and all names."""
    listed = ", ".join(names)[:LISTED]
    return f"{hint_at(given, names)}; the columns of {where} are {listed}; give one of them, or {numbers}"


def hint_at(given: str, names: Sequence[str]) -> str:
    """Return the words for a similar name, or ""."""
    close = difflib.get_close_matches(given, names, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class DelimitedTable(Table):
    """The rows of CSV and TSV files.

    Args: data: the input; its first file defines the columns.  names: the files.  settings: those that begin with CSV_,
    and DATA_ENCODING.
    """

    def __init__(self, data: Input, names: Sequence[str], settings: Settings) -> None:
        self._data = data
        self._names = names
        self.memory = data.memory
        self._encoding, self._option = settings.data_encoding, settings.csv_header
        self.delimiter = settings.csv_delimiter or find_delimiter(_first_lines(data, names[0], self._encoding))
        header, begin = self._option, self._begin()
        if not begin:
            raise DataError(f"{names[0]} has no rows; remove it, or give another file")
        self._first = begin[0]
        has_header = header in ("keep", "drop") or (
            header == "auto" and _is_header(begin, {settings.csv_label, *settings.csv_skip})
        )
        if header == "auto" and len(begin) == 1 and _are_names(begin[0]):
            raise DataError(
                f"{names[0]} has a header line and no rows: {self._first.shown}; give a table with rows, or set "
                "CSV_HEADER=none if that line is a row"
            )
        self.header = self._first.fields if has_header else None
        if header == "auto":
            what = "a header and dropped" if has_header else "a row"
            say(f"{self._first.place} is taken for {what}: {self._first.shown}; CSV_HEADER changes this")
        column_names = self.header or [f"column_{number + 1}" for number in range(len(self._first.fields))]
        self.columns = [ColumnSummary(name, data.memory, settings.csv_missing) for name in column_names]

    def _explain(self, given: str, names: Sequence[str], numbers: str) -> str:
        if self.header is not None:
            return list_names(given, names, self._first.place, numbers)
        why = "by CSV_HEADER=none" if self._option == "none" else "not for a header"
        return (
            f"{hint_at(given, self._first.fields)}: {self._first.place} is taken for a row, {why}: "
            f"{self._first.shown}; set CSV_HEADER=drop if this line names the columns, or give {numbers}"
        )

    def _begin(self) -> list[TableRow]:
        """Return the first rows of the table, by which a header is recognised: two rows, and more if they are short."""
        begin: list[TableRow] = []
        size = 0
        for row in itertools.islice(self._rows_of(self._names[0], self._data.disk.fresh()), SAMPLE_LINES):
            begin.append(row)
            size += sum(map(len, row.fields))
            if size > SAMPLE_BYTES and len(begin) > 1:
                break
        return begin

    def rows(self) -> Iterator[TableRow]:
        """Yield all rows (see `Table`); each has as many columns as the first one."""
        for name in self._names:
            for number, row in enumerate(self._rows_of(name)):
                if len(row.fields) != len(self.columns):
                    raise DataError(
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
            raise DataError(
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
                raise DataError(
                    f"{name} line {lines.first}: {error}; quote such fields, and double the quotes in them"
                ) from error
            if fields is None:
                return
            if len(fields) > COLUMNS:
                raise DataError(f"{name} line {lines.first}: it has more than {COLUMNS} columns; set CSV_DELIMITER")
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
            raise DataError(
                f"{self._name} line {self.first}: the row is longer than {LINE_BYTES} bytes; look for a quote that is "
                "not closed"
            )
        if b"\0" in line:
            raise DataError(f"{self._name} line {self.number}: it has a zero byte; save the table as UTF-8 text")
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


def _is_header(rows: Sequence[TableRow], wanted: Collection[str]) -> bool:
    """Return whether the first row is a header: it has distinct texts and no number, and a later row has a number.

    Args: wanted: the columns that settings name; a first row that has one of these names is a header, too.
    """
    if len(rows) < 2 or not _are_names(rows[0]):
        return False
    if any(field.strip() in wanted for field in rows[0].fields):
        return True
    return any(read_number(field) is not None for row in rows[1:] for field in row.fields)


def _are_names(row: TableRow) -> bool:
    names = [field.strip() for field in row.fields]
    if len(set(names)) < len(names) or not all(names):
        return False
    return all(read_number(name) is None for name in names)


def warn_of_mixed(columns: Sequence[ColumnSummary]) -> None:
    """Log a warning for each column in which most values, but not all, are numbers; trainers treat it as text."""
    for column in columns:
        if column.numbers.count > column.others > 0 and column.first_other is not None:
            place, field = column.first_other
            say(
                f"WARNING: column {column.name!r} has {column.numbers.count} numbers and {column.others} other values, "
                f"the first {field[:SHOWN]!r} in {place}: the column counts as text"
            )


def warn_of_ids(columns: Sequence[ColumnSummary]) -> None:
    """Log a warning for each column that looks like ids, from which a network learns nothing about other rows."""
    for column in columns:
        if column.looks_like_ids:
            say(
                f"WARNING: column {column.name!r} has another value in each row, as ids have; if they are ids, set "
                f"CSV_SKIP={column.name}, because a network learns ids by heart"
            )

"""Make records from files: each line of a text, each row of a table, or each whole file is a record."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from paddle_base.recordio.errors import OversizedRecordError
from paddle_base.recordio.layout import LENGTH, MAGIC_BYTES, MOST_CHUNK_BYTES
from paddle_base.remote.addresses import Address
from paddle_base.remote.places import open_place, size_of
from paddle_base.runtime.errors import DataError, MissingInputError, reading_error

MOST_LINE_BYTES = 4 << 20  # maximum bytes of a line; the data job has the same limit
MOST_FILE_BYTES = MOST_CHUNK_BYTES - LENGTH.size


def read_lines(path: Path | Address) -> Iterator[bytes]:
    """Yield every line of a file, without the line break.

    Raises: MissingInputError: the file cannot be read.  OversizedRecordError: a line has more than MOST_LINE_BYTES.
        DataError: the file is a RecordIO file and not text.
    """
    with _open(path) as file:
        for line in _lines_of(file, path):
            yield line.removesuffix(b"\n")


def read_rows(path: Path | Address) -> Iterator[bytes]:
    """Yield every row of a table of comma-separated values, unchanged; a quoted field may have several lines.

    Raises: see `read_lines`.  DataError: the table is damaged.
    """
    csv.field_size_limit(MOST_LINE_BYTES)
    taken: list[bytes] = []
    with _open(path) as file:
        rows = csv.reader(_decode(_lines_of(file, path), taken, path))
        try:
            for row in rows:
                text = b"".join(taken).rstrip(b"\r\n")
                taken.clear()
                if row:
                    yield text
        except csv.Error as error:
            raise DataError(
                f"{path} line {rows.line_num}: {error}; repair that line, or convert with --form=lines"
            ) from error


def read_files(path: Path | Address) -> Iterator[bytes]:
    """Yield the bytes of a file, or those of each file of a directory, in the order of the file names.

    Raises: see `read_lines`.  OversizedRecordError: also if a file has more than MOST_FILE_BYTES.
    """
    found: list[Path | Address] = [path]
    if isinstance(path, Path) and path.is_dir():
        found = [*sorted(one for one in path.iterdir() if not one.name.startswith("."))]
    for one in found:
        with _open(one) as file:
            size = size_of(file)
            file.seek(0)
            if size > MOST_FILE_BYTES:
                raise OversizedRecordError(f"{one} has {size} bytes: a record has at most {MOST_FILE_BYTES}; split it")
            yield _read(file, size, one)


FORMS: Mapping[str, Callable[[Path | Address], Iterator[bytes]]] = {
    "lines": read_lines,
    "csv": read_rows,
    "files": read_files,
}


def read_sources(paths: Iterable[Path | Address], form: str, skip: int) -> Iterator[bytes]:
    """Yield the records of all files in one of the FORMS, without the first `skip` records of each file.

    Raises: see the function of the form.
    """
    for path in paths:
        for number, record in enumerate(FORMS[form](path)):
            if number >= skip:
                yield record


def _lines_of(file: BinaryIO, path: Path | Address) -> Iterator[bytes]:
    number = 0
    while True:
        try:
            line = file.readline(MOST_LINE_BYTES + 1)
        except OSError as error:
            raise reading_error(MissingInputError, f"{path} cannot be read", error) from error
        if not line:
            return
        number += 1
        if number == 1 and line.startswith(MAGIC_BYTES):
            raise DataError(
                f"{path} is a RecordIO file, and no text; make lines of its records with --to=lines, or take it as one "
                "record with --form=files"
            )
        if len(line) > MOST_LINE_BYTES:
            raise OversizedRecordError(
                f"{path} line {number} has more than {MOST_LINE_BYTES} bytes; split it, or convert with --form=files"
            )
        yield line


def _decode(lines: Iterable[bytes], taken: list[bytes], path: Path | Address) -> Iterator[str]:
    """Yield each line as a text with one character for each byte, and append the line to `taken`."""
    size = 0
    for line in lines:
        size = size + len(line) if taken else len(line)
        if size > MOST_LINE_BYTES:
            raise OversizedRecordError(f"{path}: a row has more than {MOST_LINE_BYTES} bytes; close its quotes")
        taken.append(line)
        yield line.decode("latin-1")


def _open(path: Path | Address) -> BinaryIO:
    try:
        return open_place(path, "the input")
    except OSError as error:
        raise reading_error(MissingInputError, f"{path} cannot be read", error) from error


def _read(file: BinaryIO, size: int, path: Path | Address) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise reading_error(MissingInputError, f"{path} cannot be read", error) from error

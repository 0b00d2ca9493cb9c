"""What is in a RecordIO file, by its headers alone; and ranges of its records, as tasks name them."""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from recordio.errors import ChunkPlace, DamagedChunkError
from recordio.layout import HEADER, MAGIC_BYTES, ChunkIndex, parse_header
from runtime.errors import MissingInputError, PaddleError, reading_error
from runtime.regular_files import open_regular

MOST_CHUNKS = 1 << 20  # of a file: an index of them takes 0.3 GB

_RANGE = re.compile(r"(.+)#chunk=(\d{1,19})&offset=(\d{1,19})&skip=(\d{1,19})&count=(\d{1,19})", re.DOTALL)


@dataclass(frozen=True)
class RecordRange:
    """`count` records of a file: of its chunk `chunk`, whose header is at byte `offset`, the first `skip` are left out.

    `str` of it is what a task names and a provider gets in the place of a file name; `parse` reads that.
    """

    path: str
    chunk: int
    offset: int
    skip: int
    count: int

    def __str__(self) -> str:
        """Return it as a text."""
        return f"{self.path}#chunk={self.chunk}&offset={self.offset}&skip={self.skip}&count={self.count}"

    @classmethod
    def parse(cls, text: str) -> RecordRange | None:
        """Return the range that a text names; None if it has not that form, as the name of a file."""
        match = _RANGE.fullmatch(text)
        return cls(match[1], *(int(digits) for digits in match.groups()[1:])) if match else None


@dataclass(frozen=True)
class FileIndex:
    """The chunks of a file, in their order."""

    path: str
    size: int  # bytes of the file
    chunks: tuple[ChunkIndex, ...]

    @property
    def records(self) -> int:
        """All records of the file, as the headers count them."""
        return self.chunks[-1].first + self.chunks[-1].records if self.chunks else 0

    def range(self, first: int, count: int) -> RecordRange:
        """Return the records [first, first + count).

        Raises: ValueError: the file has not all of them.
        """
        if first < 0 or count < 1 or first + count > self.records:
            raise ValueError(f"{self.path} has {self.records} records, and not [{first}, {first + count})")
        chunk = self.chunks[bisect.bisect_right(self.chunks, first, key=lambda one: one.first) - 1]
        return RecordRange(self.path, chunk.number, chunk.offset, first - chunk.first, count)

    def split(self, chunks: int) -> Iterator[RecordRange]:
        """Yield all records of the file as ranges of this number of chunks; the last one may have fewer."""
        for start in range(0, len(self.chunks), chunks):
            group = self.chunks[start : start + chunks]
            count = sum(one.records for one in group)
            if count:
                yield RecordRange(self.path, group[0].number, group[0].offset, 0, count)


def read_index(path: str | Path) -> FileIndex:
    """Read the headers of a file, and no payload.

    Raises: MissingInputError: it cannot be read.  VolumeError: its volume does not answer.  DamagedChunkError: a header
        is wrong, or the file ends inside of a chunk.
    """
    with open_records(path) as file:
        size = os.fstat(file.fileno()).st_size
        return FileIndex(str(path), size, tuple(scan(file, str(path))))


def name_chunks(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of a file list, and in the place of each RecordIO file the ranges of its chunks, in order.

    A file is a RecordIO file if it begins as one. A file that cannot be opened keeps its name. Behind a damaged header
    no chunk of the file can be found; a range of one record stands for the rest, and reading it raises
    DamagedChunkError: a task with a damaged chunk fails, and no record is left out in silence.

    Raises: VolumeError: the volume of a file does not answer.
    """
    for name in names:
        try:
            file = open_records(name)
        except MissingInputError:
            yield name
            continue
        with file:
            if read_at(file.fileno(), name, len(MAGIC_BYTES), 0) == MAGIC_BYTES:
                yield from _name_ranges(file, name)
            else:
                yield name


def _name_ranges(file: BinaryIO, name: str) -> Iterator[str]:
    try:
        for chunk in scan(file, name):
            if chunk.records:
                yield str(RecordRange(name, chunk.number, chunk.offset, 0, chunk.records))
    except DamagedChunkError as error:
        yield str(RecordRange(name, error.place.number, error.place.offset, 0, 1))


def open_records(path: str | Path) -> BinaryIO:
    """Open a file to be read.

    Raises: MissingInputError: it cannot be read, or is no regular file.  VolumeError: its volume does not answer.
    """
    try:
        return open_regular(Path(path))
    except OSError as error:
        raise failure(path, error) from error


def failure(path: str | Path, error: OSError) -> PaddleError:
    """Return how to report a RecordIO file that cannot be read."""
    return reading_error(MissingInputError, f"the RecordIO file {path} cannot be read", error)


def scan(file: BinaryIO, path: str, number: int = 0, offset: int = 0) -> Iterator[ChunkIndex]:
    """Yield the chunks of an open file from one of them on, header by header.

    Raises: DamagedChunkError, MissingInputError, VolumeError: as of `read_index`.
    """
    handle, first = file.fileno(), 0
    size = os.fstat(handle).st_size
    while offset < size:
        place = ChunkPlace(path, number, offset)
        if number >= MOST_CHUNKS:
            raise DamagedChunkError(
                f"a file may have {MOST_CHUNKS} chunks; write it with larger chunks, or as several files",
                place,
            )
        chunk = parse_header(read_at(handle, path, HEADER.size, offset), place, first, size)
        yield chunk
        number, offset, first = number + 1, chunk.end, first + chunk.records


def read_at(handle: int, path: str, size: int, offset: int) -> bytes:
    """Return up to `size` bytes of an open file from an offset on, fewer where it ends.

    Raises: MissingInputError, VolumeError.
    """
    try:
        return os.pread(handle, size, offset)
    except OSError as error:
        raise failure(path, error) from error

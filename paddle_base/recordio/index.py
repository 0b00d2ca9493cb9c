"""The index of a RecordIO file's chunks, made from their headers, and the ranges of records that tasks name."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from paddle_base.recordio.errors import ChunkPlace, DamagedChunkError
from paddle_base.recordio.layout import HEADER, MAGIC_BYTES, ChunkIndex, parse_header
from paddle_base.remote import places
from paddle_base.remote.places import Place, open_place, size_of
from paddle_base.runtime.errors import MissingInputError, PaddleError, reading_error

NAME = "the RecordIO file"
MOST_CHUNKS = 1 << 20  # maximum chunks of a file: their index takes 0.3 GB

_RANGE = re.compile(r"(.+)#chunk=(\d{1,19})&offset=(\d{1,19})&skip=(\d{1,19})&count=(\d{1,19})", re.DOTALL)


@dataclass(frozen=True)
class RecordRange:
    """A range of `count` records of a file.

    The range begins in chunk number `chunk`, after the first `skip` records of this chunk. The header of the chunk is
    at byte `offset` of the file. A task names a range by the text that `str` returns. A data provider gets this text in
    place of a file name. `parse` reads the text.
    """

    path: str
    chunk: int
    offset: int
    skip: int
    count: int

    def __str__(self) -> str:
        """Return the range as a text."""
        return f"{self.path}#chunk={self.chunk}&offset={self.offset}&skip={self.skip}&count={self.count}"

    @classmethod
    def parse(cls, text: str) -> RecordRange | None:
        """Return the range that a text names, or None if the text has another form, such as a file name."""
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
        """The number of records of the file, according to the headers."""
        return self.chunks[-1].first + self.chunks[-1].records if self.chunks else 0

    def range(self, first: int, count: int) -> RecordRange:
        """Return the range of `count` records from the record number `first` on.

        Raises: ValueError: the file has fewer records.
        """
        if first < 0 or count < 1 or first + count > self.records:
            raise ValueError(f"{self.path} has {self.records} records; records [{first}, {first + count}) do not exist")
        chunk = self.chunks[bisect.bisect_right(self.chunks, first, key=lambda one: one.first) - 1]
        return RecordRange(self.path, chunk.number, chunk.offset, first - chunk.first, count)

    def split(self, chunks: int) -> Iterator[RecordRange]:
        """Yield all records of the file as ranges of `chunks` chunks; the last range may have fewer chunks."""
        for start in range(0, len(self.chunks), chunks):
            group = self.chunks[start : start + chunks]
            count = sum(one.records for one in group)
            if count:
                yield RecordRange(self.path, group[0].number, group[0].offset, 0, count)


def read_index(path: Place) -> FileIndex:
    """Return the index of a file; read the headers of its chunks, but no payload.

    Raises: MissingInputError: the file cannot be read.  VolumeError: the volume of the file does not answer.
        DamagedChunkError: a header is invalid, or the file ends inside a chunk.
    """
    with open_records(path) as file:
        return FileIndex(str(path), size_of(file), tuple(scan(file, str(path))))


def name_chunks(names: Iterable[str]) -> Iterator[str]:
    """Yield the names in a file list; each RecordIO file is replaced by the ranges of its chunks, in order.

    A file that begins with MAGIC_BYTES is a RecordIO file. A file that cannot be opened keeps its name. After a damaged
    header no further chunk can be found. A range of one record then represents the rest of the file. Reading this range
    raises DamagedChunkError, so the task fails and no record is skipped silently.

    Raises: VolumeError: the volume of a file does not answer.
    """
    for name in names:
        try:
            file = open_records(name)
        except MissingInputError:
            yield name
            continue
        with file:
            if read_at(file, name, len(MAGIC_BYTES), 0) == MAGIC_BYTES:
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


def open_records(path: Place) -> BinaryIO:
    """Open a file for reading, or an object of a bucket.

    Raises: MissingInputError: the file cannot be read, or is not a regular file.  VolumeError: the volume of the file
        does not answer.
    """
    try:
        return open_place(path, NAME)
    except OSError as error:
        raise failure(path, error) from error


def failure(path: Place, error: OSError) -> PaddleError:
    """Return the error for a RecordIO file that cannot be read."""
    return reading_error(MissingInputError, f"{NAME} {path} cannot be read", error)


def scan(file: BinaryIO, path: str, number: int = 0, offset: int = 0) -> Iterator[ChunkIndex]:
    """Yield the chunks of an open file from a given chunk on; read only their headers.

    Args: number, offset: number of the first chunk, and offset of its header in bytes.

    Raises: DamagedChunkError, MissingInputError, VolumeError: see `read_index`.
    """
    first, size = 0, size_of(file)
    while offset < size:
        place = ChunkPlace(path, number, offset)
        if number >= MOST_CHUNKS:
            raise DamagedChunkError(
                f"a file may have at most {MOST_CHUNKS} chunks; write the file with larger chunks, or as several files",
                place,
            )
        chunk = parse_header(read_at(file, path, HEADER.size, offset), place, first, size)
        yield chunk
        number, offset, first = number + 1, chunk.end, first + chunk.records


def read_at(file: BinaryIO, path: str, size: int, offset: int) -> bytes:
    """Return `size` bytes of an open file from an offset on, or fewer at the end of the file.

    Raises: MissingInputError, VolumeError.
    """
    try:
        return places.read_at(file, size, offset)
    except OSError as error:
        raise failure(path, error) from error

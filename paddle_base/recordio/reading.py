"""Read the records of a RecordIO file, or of a range of records, chunk by chunk.

The CRC, the decompression and the number of records of a chunk are checked before its first record is returned.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from itertools import chain, islice
from types import TracebackType
from typing import BinaryIO, Self

from paddle_base.recordio.compression import PayloadError, decompress
from paddle_base.recordio.errors import ChunkPlace, DamagedChunkError
from paddle_base.recordio.index import RecordRange, open_records, read_at, scan
from paddle_base.recordio.layout import LENGTH, MOST_CHUNK_BYTES, ChunkIndex, find_ends
from paddle_base.remote.places import Place, size_of

Source = Place | RecordRange  # a str names a file, an address or a range


class RecordIOReader:
    """An iterator of records (bytes). The iterator closes the file at its own end, or at the end of its `with` block.

    At a damaged chunk the iteration raises DamagedChunkError, after the records of all earlier chunks. If the file
    cannot be read, the iteration raises MissingInputError or VolumeError.
    """

    def __init__(self, source: Source):
        """Open the file.

        Raises: MissingInputError: the file cannot be read, or is not a regular file.  VolumeError: the volume of the
            file does not answer.
        """
        wanted = RecordRange.parse(source) or source if isinstance(source, str) else source
        path = wanted.path if isinstance(wanted, RecordRange) else str(wanted)
        self._file = open_records(path)
        chunks = read_range(self._file, wanted) if isinstance(wanted, RecordRange) else read_all(self._file, path)
        # `chain` is written in C, so a record costs only one step of a generator
        self._records: Iterator[bytes] = chain.from_iterable(chunks)

    def __iter__(self) -> Iterator[bytes]:
        """Return the iterator of the remaining records."""
        return self._records

    def read(self) -> bytes | None:
        """Return the next record, or None after the last record."""
        return next(self._records, None)

    def close(self) -> None:
        """Close the file; later calls of `read` return None."""
        self._records = iter(())
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_all(file: BinaryIO, path: str) -> Iterator[Iterator[bytes]]:
    """Yield an iterator of the records of each chunk of an open file; then close the file.

    Raises: see RecordIOReader.
    """
    with file:
        for chunk in scan(file, path):
            yield read_chunk(file, path, chunk)


def read_range(file: BinaryIO, wanted: RecordRange) -> Iterator[Iterator[bytes]]:
    """Yield, for each chunk with records of a range, an iterator of these records; then close the file.

    Chunks before the range are not decompressed.

    Raises: see RecordIOReader.  DamagedChunkError: also if the file ends before the range does.
    """
    skip, left = wanted.skip, wanted.count
    with file:
        for chunk in scan(file, wanted.path, wanted.chunk, wanted.offset) if left else ():
            if skip < chunk.records:
                yield islice(read_chunk(file, wanted.path, chunk), skip, skip + left)
                left -= min(left, chunk.records - skip)
                if not left:
                    return
            skip = max(0, skip - chunk.records)
        if left:
            place = ChunkPlace(wanted.path, wanted.chunk, wanted.offset)
            size = size_of(file)
            raise DamagedChunkError(
                f"{left} of the {wanted.count} records of the range are not in the file of {size} bytes; restore "
                "the file that was indexed, or index the file again",
                place,
            )


def read_chunk(file: BinaryIO, path: str, chunk: ChunkIndex) -> Iterator[bytes]:
    """Check a chunk, and yield its records.

    Raises: see RecordIOReader.
    """
    payload, ends = load_chunk(file, path, chunk)
    start = 0
    for end in ends:
        yield payload[start + LENGTH.size : end]
        start = end


def load_chunk(file: BinaryIO, path: str, chunk: ChunkIndex) -> tuple[bytes, array[int]]:
    """Return the decompressed payload of a chunk, and the offset of each record's end in this payload.

    Raises: see RecordIOReader.
    """
    place = ChunkPlace(path, chunk.number, chunk.offset)
    payload = read_at(file, path, chunk.size, chunk.start)
    crc = zlib.crc32(payload)
    if len(payload) != chunk.size or crc != chunk.crc:
        raise DamagedChunkError(
            f"the CRC-32 of the chunk's {chunk.size} bytes is 0x{crc:08x}, and the header says 0x{chunk.crc:08x}; take "
            "an undamaged copy of the file, or write it anew",
            place,
        )
    try:
        raw = decompress(payload, chunk.compression, MOST_CHUNK_BYTES)
    except PayloadError as error:
        raise DamagedChunkError(
            f"the payload cannot be decompressed: {error}; take an undamaged copy of the file, or one with "
            "smaller chunks",
            place,
        ) from error
    return raw, find_ends(raw, chunk.records, place)

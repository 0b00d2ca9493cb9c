"""The layout of RecordIO files: chunks without gaps, each with a header of 20 bytes and a payload.

The decompressed payload contains the length (uint32, little-endian) and the bytes of each record. The header has no
checksum, so every field is checked against the payload and the size of the file.

Source: go/recordio of PaddlePaddle, 1a278fc; spec/distributed.md 5.4.
"""

from __future__ import annotations

import struct
from array import array
from enum import IntEnum
from typing import NamedTuple

from paddle_base.recordio.errors import ChunkPlace, DamagedChunkError, ForeignFileError

MAGIC = 0x01020304
MAGIC_BYTES = MAGIC.to_bytes(4, "little")  # the first bytes of a file
HEADER = struct.Struct("<5I")  # magic, CRC of the payload, compression, bytes of the payload, number of records
LENGTH = struct.Struct("<I")
# maximum bytes of a payload, both compressed and decompressed: eight times the size of the Go writer's chunks
MOST_CHUNK_BYTES = 256 << 20


class Compression(IntEnum):
    """The compression of a payload; the value is the number in the header."""

    NONE = 0
    SNAPPY = 1  # framed format: google/snappy, framing_format.txt
    GZIP = 2


_KINDS = {int(one): one for one in Compression}  # a lookup is ten times as fast as Compression(number)


class ChunkIndex(NamedTuple):
    """The fields of a chunk's header, and the position of the chunk in its file."""

    number: int  # number of the chunk in the file, from 0
    offset: int  # offset of the header in the file, in bytes
    first: int  # number of records of the file before this chunk
    records: int  # number of records of the chunk
    compression: Compression
    size: int  # bytes of the payload as stored in the file
    crc: int  # CRC-32 (IEEE) of the payload as stored in the file

    @property
    def start(self) -> int:
        """The offset of the payload."""
        return self.offset + HEADER.size

    @property
    def end(self) -> int:
        """The offset after the payload, where the next chunk begins."""
        return self.start + self.size


def parse_header(header: bytes, place: ChunkPlace, first: int, file_size: int) -> ChunkIndex:
    """Return the fields of a chunk's header and the position of the chunk.

    Args: place: position of the chunk.  first: number of records of the file before this chunk.  file_size: size of
        the file in bytes.
    Raises: DamagedChunkError: the header is invalid, or the chunk exceeds the end of the file or the reader's limits.
        ForeignFileError: the file has another format.
    """
    # a file that ends inside the first four bytes is damaged, and not of another format
    if place.offset == 0 and not MAGIC_BYTES.startswith(header[: len(MAGIC_BYTES)]):
        raise ForeignFileError(
            f"{place.path} is no RecordIO file: it begins with {header[:8]!r}; take a file in the RecordIO format, or "
            "an undamaged copy",
            place,
        )
    if len(header) < HEADER.size:
        raise DamagedChunkError(
            f"the file ends {HEADER.size - len(header)} bytes before the end of the chunk's header; copy "
            "it again, or write it anew",
            place,
        )
    magic, crc, compression, size, records = HEADER.unpack(header)
    if magic != MAGIC:
        raise DamagedChunkError(
            f"the chunk begins with the wrong number 0x{magic:08x}; take a RecordIO file, or an undamaged copy",
            place,
        )
    kind = _KINDS.get(compression)
    if kind is None:
        raise DamagedChunkError(
            f"the chunk's compression is {compression}, not 0 (none), 1 (Snappy) or 2 (gzip); take an undamaged copy",
            place,
        )
    chunk = ChunkIndex(place.number, place.offset, first, records, kind, size, crc)
    if chunk.end > file_size:
        raise DamagedChunkError(
            f"the file ends {chunk.end - file_size} bytes before the end of the chunk's {size} bytes; copy "
            "it again, or write it anew",
            place,
        )
    # the raw size of a compressed chunk is not known yet; the limit bounds it, and so the number of records
    raw = size if kind is Compression.NONE else MOST_CHUNK_BYTES
    if size > MOST_CHUNK_BYTES:
        raise DamagedChunkError(
            f"the chunk has {size} bytes; the maximum is {MOST_CHUNK_BYTES}; write the file with smaller chunks",
            place,
        )
    if records * LENGTH.size > raw:
        raise DamagedChunkError(
            f"{records} records do not fit into {raw} bytes; take an undamaged copy, or write smaller chunks",
            place,
        )
    return chunk


def find_ends(payload: bytes, records: int, place: ChunkPlace) -> array[int]:
    """Return the offset of each record's end in a decompressed payload; the next 4 bytes are the next record's length.

    Raises: DamagedChunkError: the payload does not consist of exactly this number of records.
    """
    ends = array("I")
    append, unpack = ends.append, LENGTH.unpack_from
    at = 0
    try:
        for _ in range(records):
            at += 4 + unpack(payload, at)[0]
            append(at)
    except (OverflowError, struct.error):
        at = -1
    if at != len(payload):
        raise DamagedChunkError(
            f"the payload of {len(payload)} bytes does not agree with the header's number of records, {records}; take "
            "an undamaged copy",
            place,
        )
    return ends

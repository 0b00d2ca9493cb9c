"""A segment: the file with all writes of one leader.

A segment begins with the state that the leader has loaded, and continues with the transactions of the leader. A
transaction is a record:

    uint32 length of the text, uint32 CRC-32 of the text, uint32 CRC-32 of the 8 bytes before, all little-endian;
    the text, which is JSON: [[key, value or null], ...]

The last record may be truncated, or contain zeros after a power failure. Such a last record is not damage, because the
leader ended before it confirmed these writes to any trainer. A bad record before other records is damage.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from paddle_base.runtime.bounded_json import dump_compact
from paddle_base.runtime.errors import DamagedError
from paddle_cluster.master.store.interface import Write

_HEADER, _START, _SUM = struct.Struct("<III"), struct.Struct("<II"), struct.Struct("<I")
PAIRS = 5000  # maximum keys in a record of the state with which a segment begins


def encode_record(writes: Iterable[Write]) -> bytes:
    """Return a record."""
    text = dump_compact(list(writes)).encode()
    start = _START.pack(len(text), zlib.crc32(text))
    return start + _SUM.pack(zlib.crc32(start)) + text


def encode_state(pairs: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the records of a whole state."""
    some: list[Write] = []
    for pair in pairs.items():
        some.append(pair)
        if len(some) == PAIRS:
            yield encode_record(some)
            some = []
    yield encode_record(some)


def read_segment(path: Path) -> dict[str, str]:
    """Return all keys of a segment, with their last values.

    Raises: DamagedError: a record is bad, and other records follow it.  OSError: the file cannot be read.
    """
    pairs: dict[str, str] = {}
    data = memoryview(path.read_bytes())
    at = 0
    while at < len(data):
        text = _read_text(data, at)
        if text is None:
            _check_tail(path, data, at)
            break
        _apply(pairs, text, path, at)
        at += _HEADER.size + len(text)
    return pairs


def _read_text(data: memoryview, at: int) -> memoryview | None:
    """Return the text of the record at the offset `at`, or None if the record is incomplete or damaged."""
    length = _read_length(data, at)
    if length is None:
        return None
    text = data[at + _HEADER.size : at + _HEADER.size + length]
    return text if len(text) == length and zlib.crc32(text) == _HEADER.unpack_from(data, at)[1] else None


def _read_length(data: memoryview, at: int) -> int | None:
    """Return the length in a record's header, or None if the header is invalid."""
    if at + _HEADER.size > len(data):
        return None
    length, _, crc = _HEADER.unpack_from(data, at)
    return int(length) if zlib.crc32(data[at : at + _START.size]) == crc else None


def _check_tail(path: Path, data: memoryview, at: int) -> None:
    """Raise DamagedError if other records follow a bad record."""
    length = _read_length(data, at)
    if length is None:
        is_last = at + _HEADER.size > len(data) or not any(data[at:])
    else:
        is_last = at + _HEADER.size + length >= len(data)
    if not is_last:
        raise DamagedError(
            f"{path} is damaged at byte {at}: a record has changed since it was written; restore the file"
        )


def _apply(pairs: dict[str, str], text: memoryview, path: Path, at: int) -> None:
    try:
        for key, value in json.loads(bytes(text)):
            if value is None:
                pairs.pop(key, None)
            else:
                pairs[key] = value
    except (ValueError, TypeError, RecursionError) as exc:
        raise DamagedError(f"{path} is damaged at byte {at}: a record with a valid checksum is no transaction") from exc

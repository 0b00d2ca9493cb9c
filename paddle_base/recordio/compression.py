"""Compress and decompress payloads in Snappy's framed format or by gzip, with bounded memory."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.recordio.layout import Compression
from paddle_base.runtime.errors import ConfigError

_GZIP = 31  # zlib's parameter `wbits` for the gzip format with a window of 32 KiB
_SNAPPY_BEGINNING = b"\xff\x06\x00\x00sNaPpY"
_MOST_FRAME = 1 << 16  # maximum decompressed bytes of one frame; source: google/snappy, framing_format.txt 4.2


class PayloadError(Exception):
    """A payload cannot be decompressed; the error's text says why."""


def compress(raw: bytes | bytearray, compression: Compression) -> bytes | bytearray:
    """Return a payload in the compressed form that the file stores.

    Raises: ConfigError: the compression is Snappy, and cramjam is not installed.
    """
    if compression == Compression.NONE:
        return raw
    if compression == Compression.GZIP:
        stream = zlib.compressobj(wbits=_GZIP)
        return stream.compress(raw) + stream.flush()
    return bytes(load_cramjam().snappy.compress(raw))


def decompress(payload: bytes, compression: Compression, most: int) -> bytes:
    """Return the decompressed payload, at most `most` bytes.

    Raises: PayloadError: the payload is damaged, or has more than `most` bytes.  ConfigError: see `compress`.
    """
    return _DECOMPRESSORS[compression](payload, most)


def load_cramjam() -> Any:
    """Return the Snappy module.

    Raises: ConfigError: cramjam is not installed.
    """
    try:
        return importlib.import_module("cramjam")
    except ModuleNotFoundError as error:
        raise ConfigError("chunks compressed by Snappy need cramjam; install it with: pip install cramjam") from error


def _keep(payload: bytes, most: int) -> bytes:
    if len(payload) > most:
        raise PayloadError(_too_large(most))
    return payload


def _gunzip(payload: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        raw = stream.decompress(payload, most + 1)
    except zlib.error as error:
        raise PayloadError(f"gzip cannot read the payload ({error})") from error
    if len(raw) > most:
        raise PayloadError(_too_large(most))
    if not stream.eof or stream.unused_data:
        raise PayloadError("the payload is not exactly one gzip member")
    return raw


def _unsnap(payload: bytes, most: int) -> bytes:
    size = measure_snappy(payload)
    if size > most:
        raise PayloadError(_too_large(most))
    cramjam = load_cramjam()
    raw = bytearray(size)
    try:
        count = cramjam.snappy.decompress_into(payload, raw)
    except cramjam.DecompressionError as error:
        raise PayloadError(f"Snappy cannot read the payload ({error})") from error
    if count != size:
        raise PayloadError(f"Snappy decompresses the payload to {count} bytes, but its frames declare {size}")
    return bytes(raw)


def measure_snappy(payload: bytes) -> int:
    """Return the decompressed size in bytes that the frames of a Snappy stream declare.

    Raises: PayloadError: the payload does not consist of frames of Snappy.
    """
    if not payload.startswith(_SNAPPY_BEGINNING):
        raise PayloadError("the payload does not begin like data in Snappy's framed format")
    at, total = len(_SNAPPY_BEGINNING), 0
    while at < len(payload):
        kind, body = payload[at], at + 4
        at = body + int.from_bytes(payload[at + 1 : body], "little")
        if at > len(payload) or (kind <= 1 and at < body + 4):
            raise PayloadError("the payload ends inside a frame of Snappy")
        # A frame of kind 0 or 1 has 4 bytes of CRC-32C, then data. Data of kind 0 begin with their decompressed size.
        if kind <= 1:
            total += _read_varint(payload[body + 4 : at]) if kind == 0 else at - body - 4
        elif kind < 0x80 or (kind == 0xFF and payload[body:at] != _SNAPPY_BEGINNING[4:]):
            raise PayloadError(f"the payload has a frame of a kind that Snappy does not define ({kind})")
    return total


def _read_varint(body: bytes) -> int:
    value = 0
    for place, byte in enumerate(body[:3]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80 and value <= _MOST_FRAME:
            return value
    raise PayloadError(f"a frame of Snappy declares more than {_MOST_FRAME} bytes")


def _too_large(most: int) -> str:
    return f"the payload's decompressed size is above {most} bytes"


_DECOMPRESSORS: Mapping[Compression, Callable[[bytes, int], bytes]] = {
    Compression.NONE: _keep,
    Compression.SNAPPY: _unsnap,
    Compression.GZIP: _gunzip,
}

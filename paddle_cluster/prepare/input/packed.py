"""Reads files that may be packed with gzip, bzip2 or xz. The bytes are unpacked in pieces, and counted."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import IO

from paddle_base.runtime.errors import DataError
from paddle_cluster.prepare.limits import Meter

CHUNK = 1 << 16  # number of packed bytes that are read at a time
PIECE = 1 << 20  # maximum number of bytes that are unpacked at a time
MAGIC_BYTES = 6  # number of first bytes of a file that identify its format
SUFFIXES = (".gz", ".bz2", ".xz")


def from_start(descriptor: int) -> IO[bytes]:
    """Return a reader that begins at the first byte of a file. Closing the reader leaves the descriptor open."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return open(descriptor, "rb", closefd=False)


class _Gzip:
    """Unpacks gzip by zlib, with the interface of bz2 and lzma: an object keeps the input that is not unpacked yet."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._unpacker.decompress(self._unpacker.unconsumed_tail + data, max_length)


Unpacker = _Gzip | bz2.BZ2Decompressor | lzma.LZMADecompressor


def _unpacker_of(start: bytes, memory: int) -> Callable[[], Unpacker] | None:
    """Return the constructor of the unpacker for a stream that begins with `start`; None: the stream is not packed."""
    if start.startswith(b"\x1f\x8b"):
        return _Gzip
    if start.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if start.startswith(b"\xfd7zXZ\0"):
        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=memory)
    return None


def unpacked(source: IO[bytes], name: str, meter: Meter, memory: int) -> io.BufferedReader:
    """Return a reader of a file's bytes, which unpacks a packed file. Reading a damaged file raises DataError.

    Args: source: the file, read from its first byte.  name: the name of the file, for messages.  meter: counts the
    unpacked bytes.  memory: maximum number of bytes that the unpacker may need (only xz needs many bytes, for its
    dictionary).
    """
    return io.BufferedReader(_Stream(source, name, meter, memory), PIECE)


class _Stream(io.RawIOBase):
    """Reads a plain file, or one or more packed streams; users can extend a packed file by appending a stream."""

    def __init__(self, source: IO[bytes], name: str, meter: Meter, memory: int) -> None:
        super().__init__()
        self._source = source
        self._name = name
        self._meter = meter
        self._fresh = source.read(CHUNK)
        self._make = _unpacker_of(self._fresh, memory)
        self._unpacker = self._make() if self._make else None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._source.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._plain(len(buffer)) if self._make is None else self._next(min(len(buffer), PIECE))
        self._meter.take(len(piece), self._name)
        buffer[: len(piece)] = piece
        return len(piece)

    def _plain(self, most: int) -> bytes:
        self._fresh = self._fresh or self._source.read(CHUNK)
        piece, self._fresh = self._fresh[:most], self._fresh[most:]
        return piece

    def _next(self, most: int) -> bytes:
        """Return the next bytes, or b"" at the end of the last stream."""
        while self._unpacker is not None:
            try:
                piece = self._unpacker.decompress(self._fresh, most)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                if "Memory usage limit" in str(error):
                    raise DataError(
                        f"{self._name}: unpacking it needs more memory than DATA_MAX_MEMORY; raise this variable, "
                        "or pack the file with gzip"
                    ) from error
                raise DataError(f"{self._name} is damaged: {error}; give another copy of it") from error
            if self._unpacker.eof:
                self._begin_anew(self._unpacker.unused_data)
                if piece:
                    return piece
                continue
            self._fresh = b"" if piece else self._source.read(CHUNK)
            if piece:
                return piece
            if not self._fresh:
                raise DataError(f"{self._name} is cut off; give another copy of it")
        return b""

    def _begin_anew(self, rest: bytes) -> None:
        """Begin the next stream, or end after the last stream. Skip the padding (zeros) between and after streams."""
        rest = rest.lstrip(b"\0")
        while not rest and (more := self._source.read(CHUNK)):
            rest = more.lstrip(b"\0")
        self._fresh = rest + self._source.read(MAGIC_BYTES) if rest else b""
        self._unpacker = None
        if rest:
            if self._make is None or _unpacker_of(self._fresh, 0) is None:
                raise DataError(f"{self._name} has more bytes after its packed data; give another copy of it")
            self._unpacker = self._make()

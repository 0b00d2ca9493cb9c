"""Compute checksums that detect changed bits, while files are written and while files are read.

The checksum is the SHA-256 of three parts: the first 16 bytes (the header of a parameter file), the sums of each
following whole mebibyte, and the remaining bytes. A mebibyte is a matrix of 256 rows of 512 words of 64 bits. The sums
of a mebibyte are the sums of its rows and of its columns, modulo 2^64. A change in up to three words of a mebibyte is
always detected. Any other damage, including exchanged blocks, is detected with probability 1 - 2^-64. The checksum does
not protect against an attacker with write access to the volume. SHA-256 of the whole file would not protect either,
because the attacker could also replace the checksum. SHA-256 of the whole file takes five times as long as this
checksum, and CRC-32 takes three times as long (bench/RESULTS.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np

from paddle_base.runtime.durable_files import Content

HEAD = 16  # number of bytes of the header of a parameter file
ROWS, COLUMNS = 256, 512
PIECE = 8 * ROWS * COLUMNS  # bytes of a block: one mebibyte
SMALL = 1 << 16  # for at most this many bytes no other thread is used, because switching threads would take longer

Bytes = bytes | bytearray | memoryview


class Sum:
    """The checksum of bytes that are added in parts. It does not depend on how the bytes are divided into parts."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._kept = bytearray()  # the bytes that do not yet fill the next block
        self._needed = HEAD

    def add(self, part: Bytes) -> None:
        """Add the next bytes."""
        view = memoryview(part)
        if not view.nbytes:
            return
        view = view.cast("B")
        while self._kept and view:
            taken = self._needed - len(self._kept)
            self._kept += view[:taken]
            view = view[taken:]
            if len(self._kept) == self._needed:
                self._take(memoryview(self._kept))
                self._kept = bytearray()
        while len(view) >= self._needed:
            taken = self._needed
            self._take(view[:taken])
            view = view[taken:]
        self._kept += view

    @property
    def text(self) -> str:
        """The checksum of all bytes so far, in hexadecimal digits."""
        whole = self._digest.copy()
        whole.update(self._kept)
        return whole.hexdigest()

    def _take(self, piece: memoryview) -> None:
        if self._needed == HEAD:
            self._digest.update(piece)
        else:
            words = np.frombuffer(piece, "<u8").reshape(ROWS, COLUMNS)
            self._digest.update(np.add.reduce(words, axis=0))
            self._digest.update(np.add.reduce(words, axis=1))
        self._needed = PIECE


def sum_of(content: Iterable[Bytes]) -> str:
    """Return the checksum of bytes that are given in parts."""
    found = Sum()
    for part in content:
        found.add(part)
    return found.text


class Summing:
    """A context with a thread that computes the checksums of files' content while other code writes the files.

    After `add`, the memory must not change before `result` returns or the context ends.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "sums")
        self._sums: dict[str, str | Future[str]] = {}

    def __enter__(self) -> Summing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, name: str, content: Content) -> list[bytes | memoryview]:
        """Start the checksum of a file's content, and return the content for writing."""
        parts = list(content)
        is_small = sum(memoryview(part).nbytes for part in parts) <= SMALL
        self._sums[name] = sum_of(parts) if is_small else self._pool.submit(sum_of, parts)
        return parts

    def result(self) -> dict[str, str]:
        """Wait for all checksums, and return them by file name."""
        return {name: one if isinstance(one, str) else one.result() for name, one in self._sums.items()}

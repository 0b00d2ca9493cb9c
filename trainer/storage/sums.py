"""Sums of files that show whether a bit of them has changed, computed beside the writing and while reading.

SHA-256 of: the first 16 bytes (of a parameter file the header), for each whole mebibyte after them its sums, and the
rest. A mebibyte is 256 rows of 512 words of 64 bits, and its sums are those of its rows and of its columns, modulo
2^64. So whatever changes in up to three words of it is found for certain, and any other damage but one in 2^64; blocks
that changed places, too. It is no protection against somebody who may write to the volume: nor would SHA-256 of all be,
since its result could be replaced as well. That takes five times as long, CRC-32 three times (bench/RESULTS.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np

from runtime.durable_files import Content

HEAD = 16
ROWS, COLUMNS = 256, 512
PIECE = 8 * ROWS * COLUMNS  # bytes that are summed together
SMALL = 1 << 16  # bytes; a block up to this size is summed at once, in less time than a thread's turn takes

Bytes = bytes | bytearray | memoryview


class Sum:
    """The sum of bytes that come in parts; how they are parted does not matter."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._kept = bytearray()  # less than is needed next
        self._needed = HEAD

    def add(self, part: Bytes) -> None:
        """Take the next bytes."""
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
        """The sum of all so far, in hexadecimal digits."""
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
    """Return the sum of some bytes, given in parts."""
    found = Sum()
    for part in content:
        found.add(part)
    return found.text


class Summing:
    """Sums in a thread of its own, in this block, while the caller writes the same memory to files.

    What is added must not change before `result`, or the end of the block.
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
        """Begin to sum the content of a file, and return it, to be written."""
        parts = list(content)
        is_small = sum(memoryview(part).nbytes for part in parts) <= SMALL
        self._sums[name] = sum_of(parts) if is_small else self._pool.submit(sum_of, parts)
        return parts

    def result(self) -> dict[str, str]:
        """Return all sums by the names of their files; waits for those that are not ready."""
        return {name: one if isinstance(one, str) else one.result() for name, one in self._sums.items()}

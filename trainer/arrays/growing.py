"""Arrays that grow at their end, and that give up items without a second copy of the rest."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.samples import find_spans, slide_spans
from trainer.arrays.arguments import Ids

MAPPED_BYTES = 1 << 20  # an array of at least this size has a mapping of its own; a removal copies blocks of this size


class Growing:
    """A numpy array that grows at its end in amortised constant time, with little more memory than its content.

    A large array is a private mapping. The system moves its pages when it grows, so there are never two copies. The
    room for more items needs no memory before it is used, and all memory is free after the last use.
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._store: npt.NDArray[Any] = np.empty((0, *shape), dtype)
        self._map: mmap.mmap | None = None
        self._length = 0
        self._item_bytes = max(1, self._store.itemsize * math.prod(shape))

    @property
    def nbytes(self) -> int:
        """The bytes of the content."""
        return self._length * self._item_bytes

    def view(self) -> npt.NDArray[Any]:
        """Return the content as a view, which must be gone before the next change."""
        return self._store[: self._length]

    def extend(self, items: npt.NDArray[Any]) -> None:
        """Append items."""
        needed = self._length + len(items)
        if needed > len(self._store):
            self._grow(max(needed, len(self._store) + len(self._store) // 2))
        self._store[self._length : needed] = items
        self._length = needed

    def _grow(self, room: int) -> None:
        """Make room for this number of items."""
        shape, dtype, size = self._store.shape[1:], self._store.dtype, room * self._item_bytes
        if self._map is not None:
            del self._store  # a mapping in use cannot be moved
            self._map.resize(size)
            self._store = np.frombuffer(self._map, dtype).reshape(room, *shape)
            return
        content = self.view()
        if size < MAPPED_BYTES or not math.prod(shape):
            self._store = np.empty((room, *shape), dtype)
        else:
            self._map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._store = np.frombuffer(self._map, dtype).reshape(room, *shape)
        self._store[: self._length] = content

    def keep(self, rows: Ids) -> None:
        """Remove all items except rows[0], rows[1], ..., which get the positions 0, 1, ...; rows[i] is at least i."""
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        step = max(1, MAPPED_BYTES // self._item_bytes)
        for first in range(0, len(moved), step):
            places = moved[first : first + step]  # no later block reads them, because its rows are greater
            self._store[places] = self._store.take(rows[places], axis=0)
        self._length = len(rows)

    def keep_spans(self, starts: Ids, offsets: Ids) -> None:
        """Remove all items except some spans, which are joined.

        Args: starts, offsets: as `Spans.find` returns them for ascending rows.
        """
        slide_spans(self._store, starts, offsets)
        self._length = int(offsets[-1])

    def replace(self, items: npt.NDArray[Any]) -> None:
        """Replace the content by the given items."""
        self._store, self._map, self._length = items, None, len(items)


class Spans:
    """The positions of the items of each row. One array contains the items of all rows, row by row."""

    def __init__(self) -> None:
        self._offsets = Growing((), np.int64)
        self._offsets.extend(np.zeros(1, np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes of the positions."""
        return self._offsets.nbytes

    def extend(self, lengths: Ids) -> None:
        """Append rows of the given lengths."""
        self._offsets.extend(self._offsets.view()[-1] + np.cumsum(lengths))

    def find(self, rows: Ids) -> tuple[Ids, Ids]:
        """Return (starts, offsets): rows[i] has offsets[i + 1] - offsets[i] items, and the first is at starts[i]."""
        return find_spans(self._offsets.view(), rows)

    def replace(self, offsets: Ids) -> None:
        """Replace the rows."""
        self._offsets.replace(offsets)

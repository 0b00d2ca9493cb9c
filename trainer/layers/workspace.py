"""Arrays that a layer reuses from batch to batch, because allocating a large array costs more than filling it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Array

_SPARE = 1.25  # arrays grow to this multiple of the size that a batch needs, because a still larger batch often follows


class Workspace:
    """Arrays by name; each array grows to the size that the largest batch needs."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def rows(self, name: str, rows: int, columns: int, dtype: npt.DTypeLike) -> Array:
        """Return a (rows, columns) array with arbitrary content."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < rows or kept.shape[1] != columns or kept.dtype != dtype:
            kept = np.empty((rows if kept is None else int(rows * _SPARE), columns), dtype)
            self._kept[name] = kept
        return kept[:rows]

    def zeros(self, name: str, rows: int, columns: int, dtype: npt.DTypeLike) -> Array:
        """Return a (rows, columns) array of zeros."""
        result = self.rows(name, rows, columns, dtype)
        result.fill(0)
        return result


class Buffer:
    """One array at a time, of any shape; the memory grows to the largest requested size and never shrinks."""

    def __init__(self) -> None:
        self._memory: Array = np.empty(0, np.float32)

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return a contiguous array with arbitrary content; the next call may return the same memory."""
        size = math.prod(shape)
        if self._memory.dtype != dtype or self._memory.size < size:
            self._memory = np.empty(size, dtype)
        return self._memory[:size].reshape(shape)

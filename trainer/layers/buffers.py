"""Memory that a layer uses again batch after batch: fresh pages for large arrays cost more than filling them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from trainer.arguments import Array


class Buffer:
    """One array at a time, of any shape; grows to the largest asked for and stays that large."""

    def __init__(self) -> None:
        self._memory: Array = np.empty(0, np.float32)

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return a contiguous array with any content, which the next call may hand out again."""
        size = math.prod(shape)
        if self._memory.dtype != dtype or self._memory.size < size:
            self._memory = np.empty(size, dtype)
        return self._memory[:size].reshape(shape)

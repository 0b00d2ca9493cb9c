"""Work arrays that a layer keeps from batch to batch, so that large ones are not asked of the system again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.arguments import Array

_SPARE = 1.25  # a larger batch is seldom the largest one: ask for some more than it needs


class Workspace:
    """Arrays by name; each grows with the largest batch so far."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def rows(self, name: str, rows: int, columns: int, dtype: npt.DTypeLike) -> Array:
        """Return a (rows, columns) array with numbers of before in it."""
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

"""Kernels for windows over the rows of sequences: sums of rows of tables, and the maxima of these sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits, plain
from paddle_base.kernels.rows import as_int64, spread_maxima

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class SequenceWindows:
    """Windows over the rows of sequences. The tables of the distinct rows store equal rows only once.

    The window of row r has the rows r + first, ..., r + first + length - 1. Rows outside the sequence of r are ignored.

    Shapes: index: (rows,), the index of each row among the distinct rows; starts: (sequences + 1,), from 0 to rows.
    """

    index: Ids
    starts: Ids
    first: int

    def arguments(self, tables: Array) -> tuple[Any, ...]:
        """Return the arguments of the compiled functions. Shapes: tables: (distinct rows, length, width)."""
        distinct, length, width = tables.shape
        return as_int64(self.index), as_int64(self.starts), width, self.first, length, distinct


def sum_windows(tables: Array, windows: SequenceWindows) -> Array:
    """Return for each row r the sum over k of tables[index[r + first + k], k].

    Shapes: tables: (distinct rows, window length, width); result: (rows, width)
    """
    if compiled is not None and fits(tables) and tables.shape[2]:
        result = np.empty((len(windows.index), tables.shape[2]), np.float32)
        compiled.sum_windows(result, tables, *windows.arguments(tables))
        return result
    return plain.sum_windows(tables, windows.index, windows.starts, windows.first)


def add_windows(tables: Array, rows: Array, windows: SequenceWindows) -> None:
    """Add rows[r], the gradient of the sum of window r, to tables[index[r + first + k], k] in place for every k."""
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(tables, rows) and tables.shape[2]:
        compiled.add_windows(tables, rows, *windows.arguments(tables))
    else:
        plain.add_windows(tables, rows, windows.index, windows.starts, windows.first)


def max_windows(tables: Array, windows: SequenceWindows) -> tuple[Array, Ids]:
    """Return the maximum of each column of `sum_windows` in each sequence, and the first row with this maximum.

    For a sequence without rows, the results are 0 and -1.

    Shapes: tables: (distinct rows, window length, width); results: (sequences, width)
    """
    if compiled is not None and fits(tables) and tables.shape[2]:
        result = np.empty((len(windows.starts) - 1, tables.shape[2]), np.float32)
        places = np.empty(result.shape, np.int64)
        compiled.max_windows(result, places, tables, *windows.arguments(tables))
        return result, places
    return plain.max_stretches(sum_windows(tables, windows), windows.starts)


def add_maxima(tables: Array, gradient: Array, places: Ids, windows: SequenceWindows) -> None:
    """Add the gradient of each maximum to the elements of `tables` of which the maximum is the sum.

    Shapes: tables: (distinct rows, window length, width); `gradient` and `places` are both (sequences, width).
    """
    gradient = np.ascontiguousarray(gradient)
    if compiled is not None and fits(tables, gradient) and tables.shape[2]:
        compiled.add_maxima(tables, gradient, places, *windows.arguments(tables))
    else:
        add_windows(tables, spread_maxima(gradient, places, len(windows.index)), windows)


def descend_maxima(
    weight: Array, x: Array, gradient: Array, places: Ids, windows: SequenceWindows
) -> tuple[Array, Array] | None:
    """Return the gradients of weight and x for `max_windows` of tables, where tables[:, k] is x times weight[k].

    If there are few maxima, this function is faster than computing the gradient of the tables first. The result is None
    if the function is not compiled or the arrays do not fit.
    Shapes: the results have the shapes of weight and x.
    """
    gradient = np.ascontiguousarray(gradient)
    if compiled is None or not fits(weight, x, gradient) or not weight.size:
        return None
    length, _, width = weight.shape
    transposed = np.ascontiguousarray(weight.transpose(2, 0, 1))
    d_weight, d_x = np.zeros_like(transposed), np.zeros_like(x)
    sizes = as_int64(windows.index), as_int64(windows.starts), width, windows.first, length, len(x)
    compiled.descend_maxima(d_weight, d_x, transposed, x, gradient, places, *sizes)
    return d_weight.transpose(1, 2, 0), d_x

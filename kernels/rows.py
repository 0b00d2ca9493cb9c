"""Rows of matrices: what tables and sparse inputs are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, fits, plain

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def _as_int64(ids: Ids) -> Ids:
    return np.ascontiguousarray(ids, np.int64)


def add_rows(target: Array, ids: Ids, rows: Array) -> None:
    """Add rows[i] to target[ids[i]] in place; repeated ids add up.

    Shapes: target: (any, width), ids: (n,) not negative, rows: (n, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(target, rows) and rows.shape[1]:
        compiled.add_rows(target, _as_int64(ids), rows, rows.shape[1])
    else:
        plain.add_rows(target, ids, rows)


def sum_rows(table: Array, ids: Ids, starts: Ids, values: Array | None = None) -> Array:
    """Return for each stretch [starts[i], starts[i + 1]) the sum of values[k] * table[ids[k]]; zeros for an empty one.

    Shapes: table: (any, width), starts: (stretches + 1,), ids: (n,), values: (n,) or None for ones.
        result: (stretches, width)
    """
    if compiled is not None and fits(table, values) and table.shape[1]:
        result = np.empty((len(starts) - 1, table.shape[1]), np.float32)
        compiled.sum_rows(result, table, _as_int64(ids), _as_int64(starts), table.shape[1], values)
        return result
    return plain.sum_rows(table, ids, starts, values)


def add_outer(target: Array, rows: Array, ids: Ids, starts: Ids, values: Array | None = None) -> None:
    """Add values[k] * rows[i] to target[ids[k]] in place for every k in [starts[i], starts[i + 1]).

    The gradient of `sum_rows`. Shapes: as there; rows: (stretches, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(target, rows, values) and rows.shape[1]:
        compiled.add_outer(target, rows, _as_int64(ids), _as_int64(starts), rows.shape[1], values)
    else:
        plain.add_outer(target, rows, ids, starts, values)


def add_taken(out: Array, table: Array, ids: Ids) -> None:
    """Add table[ids[i]] to out[i] in place. Shapes: out: (n, width), table: (any, width), ids: (n,)."""
    if compiled is not None and fits(out, table) and out.shape[1]:
        compiled.add_taken(out, table, _as_int64(ids), out.shape[1])
    else:
        out += table.take(ids, axis=0)


@dataclass(frozen=True)
class Windows:
    """Windows over the rows of sequences, as places in tables of the distinct rows.

    The window of row r has the rows r + first, ..., r + first + length - 1; those outside of r's own sequence do not
    count.

    Shapes: index: (rows,), the distinct row of each row; starts: (sequences + 1,), from 0 to rows.
    """

    index: Ids
    starts: Ids
    first: int

    def arguments(self, tables: Array) -> tuple[Any, ...]:
        """Return what the compiled functions take. Shapes: tables: (distinct rows, length, width)."""
        distinct, length, width = tables.shape
        return _as_int64(self.index), _as_int64(self.starts), width, self.first, length, distinct


def sum_windows(tables: Array, windows: Windows) -> Array:
    """Return for each row r the sum over k of tables[index[r + first + k], k].

    Shapes: tables: (distinct rows, window length, width); result: (rows, width)
    """
    if compiled is not None and fits(tables) and tables.shape[2]:
        result = np.empty((len(windows.index), tables.shape[2]), np.float32)
        compiled.sum_windows(result, tables, *windows.arguments(tables))
        return result
    return plain.sum_windows(tables, windows.index, windows.starts, windows.first)


def add_windows(tables: Array, rows: Array, windows: Windows) -> None:
    """Add rows[r] to tables[index[r + first + k], k] in place: the gradient of `sum_windows`."""
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(tables, rows) and tables.shape[2]:
        compiled.add_windows(tables, rows, *windows.arguments(tables))
    else:
        plain.add_windows(tables, rows, windows.index, windows.starts, windows.first)


def max_windows(tables: Array, windows: Windows) -> tuple[Array, Ids]:
    """Return the maximum of each column of `sum_windows` in each sequence, and its first row; 0 and -1 in an empty one.

    Shapes: tables: (distinct rows, window length, width); results: (sequences, width)
    """
    if compiled is not None and fits(tables) and tables.shape[2]:
        result = np.empty((len(windows.starts) - 1, tables.shape[2]), np.float32)
        places = np.empty(result.shape, np.int64)
        compiled.max_windows(result, places, tables, *windows.arguments(tables))
        return result, places
    return plain.max_stretches(sum_windows(tables, windows), windows.starts)


def add_maxima(tables: Array, gradient: Array, places: Ids, windows: Windows) -> None:
    """Add the gradient of each maximum to the entries of `tables` that it is the sum of: the gradient of `max_windows`.

    Shapes: tables: (distinct rows, window length, width), gradient, places: (sequences, width).
    """
    gradient = np.ascontiguousarray(gradient)
    if compiled is not None and fits(tables, gradient) and tables.shape[2]:
        compiled.add_maxima(tables, gradient, places, *windows.arguments(tables))
    else:
        add_windows(tables, spread_maxima(gradient, places, len(windows.index)), windows)


def descend_maxima(
    weight: Array, x: Array, gradient: Array, places: Ids, windows: Windows
) -> tuple[Array, Array] | None:
    """Return the gradients of weight and x, where the tables of `max_windows` are x times the weight's blocks.

    For few maxima this is faster than by way of tables. None where that is not compiled.
    Shapes: weight: (window length, depth, width), x: (distinct rows, depth), gradient, places: (sequences, width);
        results: as weight and x.
    """
    gradient = np.ascontiguousarray(gradient)
    if compiled is None or not fits(weight, x, gradient) or not weight.size:
        return None
    length, _, width = weight.shape
    transposed = np.ascontiguousarray(weight.transpose(2, 0, 1))
    d_weight, d_x = np.zeros_like(transposed), np.zeros_like(x)
    sizes = _as_int64(windows.index), _as_int64(windows.starts), width, windows.first, length, len(x)
    compiled.descend_maxima(d_weight, d_x, transposed, x, gradient, places, *sizes)
    return d_weight.transpose(1, 2, 0), d_x


def sum_stretches(rows: Array, starts: Ids) -> Array:
    """Return the sum of the rows of each stretch [starts[i], starts[i + 1]), zero of an empty one.

    Shapes: rows: (n, width), starts: (stretches + 1,), from 0 to n; result: (stretches, width)
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(rows) and rows.shape[1]:
        result = np.empty((len(starts) - 1, rows.shape[1]), np.float32)
        compiled.sum_stretches(result, rows, _as_int64(starts), rows.shape[1])
        return result
    return plain.sum_stretches(rows, starts)


def max_stretches(rows: Array, starts: Ids) -> tuple[Array, Ids]:
    """Return each column's maximum in each stretch, and the row of the first one; 0 and -1 in an empty stretch.

    Shapes: rows: (n, width), starts: (stretches + 1,), from 0 to n; results: (stretches, width)
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(rows) and rows.shape[1]:
        result = np.empty((len(starts) - 1, rows.shape[1]), np.float32)
        places = np.empty(result.shape, np.int64)
        compiled.max_stretches(result, places, rows, _as_int64(starts), rows.shape[1])
        return result, places
    return plain.max_stretches(rows, starts)


def spread_maxima(gradient: Array, places: Ids, rows: int) -> Array:
    """Return a (rows, width) matrix: gradient[i, j] is in row places[i, j] of column j, or nowhere if that is -1."""
    gradient = np.ascontiguousarray(gradient)
    if compiled is not None and fits(gradient) and gradient.shape[1]:
        result = np.empty((rows, gradient.shape[1]), np.float32)
        compiled.spread_maxima(result, gradient, _as_int64(places), gradient.shape[1])
        return result
    return plain.spread_maxima(gradient, places, rows)


def take_sum(out: Array, table: Array, ids: Ids, bias: Array | None = None, more: Array | None = None) -> None:
    """Write table[ids[i]], plus a bias, plus more[i] where there are so many rows, to out[i].

    Shapes: out: (n, width), table: (any, width), ids: (n,), bias: (width,), more: (up to n, width).
    """
    if compiled is not None and fits(out, table, bias, more) and out.shape[1]:
        compiled.take_sum(out, table, _as_int64(ids), out.shape[1], bias, more)
    else:
        plain.take_sum(out, table, ids, bias, more)

"""Kernels for rows of matrices: rows of tables, sparse inputs, ragged rows, and the columns that labels select.

A ragged row is a group of successive rows: ragged row i of an array has the rows [starts[i], starts[i + 1]).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits, plain

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def as_int64(ids: Ids) -> Ids:
    """Return the ids as a contiguous int64 array, which the compiled functions need."""
    return np.ascontiguousarray(ids, np.int64)


def add_rows(target: Array, ids: Ids, rows: Array) -> None:
    """Add rows[i] to target[ids[i]] in place; the rows of a repeated id add up.

    Shapes: target: (any, width), ids: (n,) not negative, rows: (n, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(target, rows) and rows.shape[1]:
        compiled.add_rows(target, as_int64(ids), rows, rows.shape[1])
    else:
        plain.add_rows(target, ids, rows)


def sum_rows(table: Array, ids: Ids, starts: Ids, values: Array | None = None) -> Array:
    """Return, for each i, the sum of values[k] * table[ids[k]] over all k in [starts[i], starts[i + 1]).

    The sum over no k is zero.

    Shapes: table: (any, width), starts: (ragged rows + 1,), ids: (n,), values: (n,) or None for ones; result: (ragged
        rows, width).
    """
    if compiled is not None and fits(table, values) and table.shape[1]:
        result = np.empty((len(starts) - 1, table.shape[1]), np.float32)
        compiled.sum_rows(result, table, as_int64(ids), as_int64(starts), table.shape[1], values)
        return result
    return plain.sum_rows(table, ids, starts, values)


def add_outer(target: Array, rows: Array, ids: Ids, starts: Ids, values: Array | None = None) -> None:
    """Add values[k] * rows[i] to target[ids[k]] in place for every k in [starts[i], starts[i + 1]).

    This function is the gradient of `sum_rows`. Shapes: rows: (ragged rows, width); the other arrays: see `sum_rows`.
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(target, rows, values) and rows.shape[1]:
        compiled.add_outer(target, rows, as_int64(ids), as_int64(starts), rows.shape[1], values)
    else:
        plain.add_outer(target, rows, ids, starts, values)


def differentiate_weighted_sums(g: Array, w: Array, x: Array, starts: Ids) -> tuple[Array, Array]:
    """Return the gradients of w and of x; row s of g is the gradient of the sum of w[i] * x[i] over sequence s.

    Shapes: g: (sequences, width), w: (frames, 1), x: (frames, width), starts: (sequences + 1,) from 0.
    """
    if compiled is None or not fits(g, w, x) or not x.shape[1]:
        of_frames = np.repeat(g, np.diff(starts), axis=0)
        return (of_frames * x).sum(axis=1, keepdims=True), of_frames * w
    d_w, d_x = np.empty_like(w), np.empty_like(x)
    compiled.weighted_sums_gradient(d_x, x, d_w, w, g, as_int64(starts), x.shape[1])
    return d_w, d_x


def add_taken(out: Array, table: Array, ids: Ids) -> None:
    """Add table[ids[i]] to out[i] in place. Shapes: out: (n, width), table: (any, width), ids: (n,)."""
    if compiled is not None and fits(out, table) and out.shape[1]:
        compiled.add_taken(out, table, as_int64(ids), out.shape[1])
    else:
        out += table.take(ids, axis=0)


def sum_stretches(rows: Array, starts: Ids) -> Array:
    """Return the sum of the rows of each ragged row; zeros for an empty ragged row.

    Shapes: rows: (n, width), starts: (ragged rows + 1,), from 0 to n; result: (ragged rows, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(rows) and rows.shape[1]:
        result = np.empty((len(starts) - 1, rows.shape[1]), np.float32)
        compiled.sum_stretches(result, rows, as_int64(starts), rows.shape[1])
        return result
    return plain.sum_stretches(rows, starts)


def sum_columns(rows: Array) -> Array:
    """Return the sum of each column; the rows are added one after the other, as in PaddlePaddle v0.10.

    Shapes: (n, width) -> (width,).
    """
    total: Array = sum_stretches(rows, np.array([0, len(rows)]))[0]
    return total


def max_stretches(rows: Array, starts: Ids) -> tuple[Array, Ids]:
    """Return the maximum of each column in each ragged row, and the index in `rows` of the first row with this maximum.

    A ragged row is the group of the rows [starts[i], starts[i + 1]). For an empty group, the results are 0 and -1.

    Shapes: rows: (n, width), starts: (ragged rows + 1,), from 0 to n; results: (ragged rows, width).
    """
    rows = np.ascontiguousarray(rows)
    if compiled is not None and fits(rows) and rows.shape[1]:
        result = np.empty((len(starts) - 1, rows.shape[1]), np.float32)
        places = np.empty(result.shape, np.int64)
        compiled.max_stretches(result, places, rows, as_int64(starts), rows.shape[1])
        return result, places
    return plain.max_stretches(rows, starts)


def spread_maxima(gradient: Array, places: Ids, rows: int) -> Array:
    """Return a (rows, width) matrix with gradient[i, j] in row places[i, j] of column j. Entries of -1 are ignored."""
    gradient = np.ascontiguousarray(gradient)
    if compiled is not None and fits(gradient) and gradient.shape[1]:
        result = np.empty((rows, gradient.shape[1]), np.float32)
        compiled.spread_maxima(result, gradient, as_int64(places), gradient.shape[1])
        return result
    return plain.spread_maxima(gradient, places, rows)


def take_sum(out: Array, table: Array, ids: Ids, bias: Array | None = None, more: Array | None = None) -> None:
    """Set out[i] = table[ids[i]] + bias + more[i]. If `more` is shorter than `out`, the last rows get no more[i].

    Shapes: out: (n, width), table: (any, width), ids: (n,), bias: (width,), more: (up to n, width).
    """
    if compiled is not None and fits(out, table, bias, more) and out.shape[1]:
        compiled.take_sum(out, table, as_int64(ids), out.shape[1], bias, more)
    else:
        plain.take_sum(out, table, ids, bias, more)


def pick_columns(rows: Array, columns: Ids) -> Array:
    """Return rows[i, columns[i]] for every row i. Shapes: rows: (n, width), columns: (n,) in [0, width) -> (n,)."""
    if compiled is not None and fits(rows):
        result = np.empty(len(rows), np.float32)
        compiled.pick_columns(result, rows, as_int64(columns), rows.shape[1])
        return result
    return plain.pick_columns(rows, columns)


def put_columns(values: Array, columns: Ids, width: int) -> Array:
    """Return a matrix with values[i] in column columns[i] of row i, zero elsewhere: the gradient of `pick_columns`.

    Shapes: values: (n,), columns: (n,) in [0, width) -> (n, width).
    """
    if compiled is not None and fits(values):
        result = np.empty((len(values), width), np.float32)
        compiled.put_columns(result, values, as_int64(columns), width)
        return result
    return plain.put_columns(values, columns, width)


def find_largest(rows: Array) -> Ids:
    """Return the column of each row's first largest number. Shapes: (n, width) -> (n,).

    A NaN counts as the largest number.
    """
    if compiled is not None and fits(rows) and rows.shape[1]:
        columns = np.empty(len(rows), np.int64)
        compiled.find_largest(columns, rows, rows.shape[1])
        return columns
    return plain.find_largest(rows)


def all_inside(ids: Ids, upper: int) -> bool:
    """Return whether all ids are in [0, upper)."""
    return plain.all_inside(ids, upper) if compiled is None else compiled.all_inside(as_int64(ids), upper)

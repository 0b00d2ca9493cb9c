"""Activations of whole arrays, and their gradients, each in one pass.

If a function returns False, the caller must use numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits, plain

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]

KINDS = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}  # the compiled activations, by `active_type`


def are_compiled(kinds: Iterable[str]) -> bool:
    """Return whether all activations of these names are compiled."""
    return all(kind in KINDS for kind in kinds)


def activate(kind: str, z: Array) -> bool:
    """Replace each z by y, the result of the activation."""
    if compiled is None or kind not in KINDS or not fits(z):
        return False
    compiled.activate(KINDS[kind], z)
    return True


def differentiate(kind: str, out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of z to `out`; g is the gradient of y, the result of the activation. `out` may be g."""
    if compiled is None or kind not in KINDS or not fits(out, g, y):
        return False
    compiled.differentiate(KINDS[kind], out, g, y)
    return True


def softmax(y: Array, floor: float) -> bool:
    """Replace each row by its softmax. Numbers below the row's maximum + `floor` are first raised to this sum.

    Shapes: y: (rows, width), not empty.
    """
    if compiled is None or not fits(y) or not y.size:
        return False
    compiled.softmax(y, y.shape[1], floor)
    return True


def differentiate_softmax(out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of z to `out`; y is the softmax of z, and g is the gradient of y.

    Shapes: (rows, width), not empty.
    """
    if compiled is None or not fits(out, g, y) or not y.size:
        return False
    compiled.softmax_gradient(out, g, y, y.shape[1])
    return True


def differentiate_picked_softmax(out: Array, values: Array, columns: Ids, y: Array) -> bool:
    """Write the gradient of z to `out`; y is the softmax of z.

    The gradient of y is values[i] in column columns[i] of row i, and zero elsewhere.

    Shapes: out, y: (rows, width), not empty; values, columns: (rows,).
    """
    if compiled is None or not fits(out, values, y) or not y.size:
        return False
    compiled.picked_softmax_gradient(out, y, values, np.ascontiguousarray(columns, np.int64), y.shape[1])
    return True


def sequence_softmax(y: Array, starts: Ids, floor: float) -> bool:
    """Replace the numbers of each sequence by their softmax; see `softmax` for `floor`.

    Shapes: y: (frames, 1), starts: (sequences + 1,) from 0.
    """
    if compiled is None or not fits(y):
        return False
    compiled.sequence_softmax(y, np.ascontiguousarray(starts, np.int64), floor)
    return True


def differentiate_sequence_softmax(out: Array, g: Array, y: Array, starts: Ids) -> bool:
    """Write the gradient of z to `out`; y is the softmax over each sequence of z, and g is the gradient of y.

    Shapes: (frames, 1), starts: (sequences + 1,) from 0.
    """
    if compiled is None or not fits(out, g, y):
        return False
    compiled.sequence_softmax_gradient(out, g, y, np.ascontiguousarray(starts, np.int64))
    return True


def tanh_sums(x: Array, rows: Array, starts: Ids) -> Array:
    """Return tanh(x[i] + rows[s]) for the frames i of each sequence s.

    Shapes: x: (frames, size), rows: (sequences, size), starts: (sequences + 1,) from 0 -> (frames, size).
    """
    if compiled is None or not fits(x, rows):
        y: Array = np.tanh(np.repeat(rows, np.diff(starts), axis=0) + x)
        return y
    y = np.empty_like(x)
    compiled.tanh_sums(y, x, rows, np.ascontiguousarray(starts, np.int64), x.shape[1])
    return y


def differentiate_tanh_sums(d: Array, y: Array, v: Array, starts: Ids) -> tuple[Array, Array, Array]:
    """Return the gradients of x, the rows and v; y is the result of `tanh_sums`, and d is the gradient of y times v.

    Shapes: d: (frames, 1), y: (frames, size), v: (size,), starts: (sequences + 1,) from 0.
    """
    if compiled is None or not fits(d, y, v):
        d_x = d * v * (1 - y * y)
        return d_x, plain.sum_stretches(d_x, starts), (d * y).sum(axis=0)
    d_x, d_v = np.empty_like(y), np.empty_like(v)
    d_rows = np.empty((len(starts) - 1, len(v)), v.dtype)
    compiled.tanh_sums_gradient(d_x, y, d_rows, d_v, d, v, np.ascontiguousarray(starts, np.int64), len(v))
    return d_x, d_rows, d_v

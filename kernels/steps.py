"""Activations, and the steps of recurrent layers, in one pass. Where a function returns False, numpy has to do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]

KINDS = {"": 0, "sigmoid": 1, "tanh": 2, "relu": 3}  # the activations that are compiled, by `active_type`


def _fits(*arrays: Array | None) -> bool:
    return all(one is None or (one.dtype == np.float32 and one.flags.c_contiguous) for one in arrays)


def activate(kind: str, z: Array) -> bool:
    """Put the activation's y in the place of z."""
    if compiled is None or kind not in KINDS or not _fits(z):
        return False
    compiled.activate(KINDS[kind], z)
    return True


def differentiate(kind: str, out: Array, g: Array, y: Array) -> bool:
    """Write the gradient of z, where g is that of y; `out` may be g."""
    if compiled is None or kind not in KINDS or not _fits(out, g, y):
        return False
    compiled.differentiate(KINDS[kind], out, g, y)
    return True


def lstm_forward(
    gates: Array, peepholes: Array, before: Array, c: Array, h: Array, *, candidate: str, gate: str, state: str
) -> bool:
    """Turn the sums in `gates` into (a, i, f, o), and write the state c and the output h.

    Shapes: gates: (n, 4 * size); peepholes: (3, size); before (the state), c, h: (n, size).
    """
    kinds = candidate, gate, state
    if compiled is None or not (KINDS.keys() >= set(kinds) and _fits(gates, peepholes, before, c, h)):
        return False
    compiled.lstm_forward(c, gates, peepholes, before, h, c.shape[1], *map(KINDS.__getitem__, kinds))
    return True


def lstm_backward(
    gates: Array,
    peepholes: Array,
    before: Array,
    c: Array,
    d_h: Array,
    d_c: Array,
    d_peepholes: Array,
    *,
    candidate: str,
    gate: str,
    state: str,
) -> bool:
    """Put the gradients of the sums in the place of the gates, and that of the state before in the place of d_c.

    Shapes: as of `lstm_forward`; d_h, d_c: (n, size), d_h is used up; d_peepholes: (3, size), added to.
    """
    kinds, arrays = (candidate, gate, state), (gates, peepholes, before, c, d_h, d_c, d_peepholes)
    if compiled is None or not (KINDS.keys() >= set(kinds) and _fits(*arrays)):
        return False
    size = c.shape[1]
    compiled.lstm_backward(d_c, gates, peepholes, before, c, d_h, d_peepholes, size, *map(KINDS.__getitem__, kinds))
    return True

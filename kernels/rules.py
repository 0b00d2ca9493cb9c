"""Update rules in one pass over the arrays. Each returns False, and does nothing, where numpy has to do it.

The arithmetic is that of pserver.rules, operation by operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, fits

Array = npt.NDArray[np.float32]
Rows = npt.NDArray[np.integer[Any]]
Scalar = float | np.floating[Any]
Number = Scalar | npt.NDArray[Any]


def _column(number: Number) -> Array:
    """Return a factor, or those of rows, as a flat array."""
    return np.ascontiguousarray(number, np.float32).reshape(-1)


def momentum(
    w: Array, g: Array, m: Array | None, *, rate: Scalar, mu: Scalar, decay: Scalar, rows: Rows | None = None
) -> bool:
    """Momentum, or without `m` plain SGD."""
    if compiled is None or not fits(w, g, m):
        return False
    compiled.momentum(w, g, m, rate, mu, decay, rows, w.shape[-1])
    return True


def adam(
    w: Array, g: Array, m: Array, v: Array, *, rate: Scalar, beta1: Scalar, beta2: Scalar, epsilon: Scalar
) -> bool:
    """Adam."""
    if compiled is None or not fits(w, g, m, v):
        return False
    compiled.adam(w, m, v, g, rate, beta1, beta2, epsilon)
    return True


def adamax(w: Array, g: Array, m: Array, u: Array, *, rate: Scalar, beta1: Scalar, beta2: Scalar) -> bool:
    """Adamax."""
    if compiled is None or not fits(w, g, m, u):
        return False
    compiled.adamax(w, m, u, g, rate, beta1, beta2)
    return True


def adagrad(
    w: Array,
    g: Array,
    total: Array,
    recent: Array,
    m: Array | None,
    *,
    rate: Scalar,
    mu: Scalar,
    decay: Scalar,
    epsilon: Scalar,
    rows: Rows | None = None,
) -> bool:
    """AdaGrad."""
    if compiled is None or not fits(w, g, total, recent, m):
        return False
    compiled.adagrad(w, total, recent, g, m, rate, mu, decay, epsilon, 0.0, rows, w.shape[-1])
    return True


def decayed_adagrad(
    w: Array,
    g: Array,
    q: Array,
    m: Array | None,
    *,
    rate: Scalar,
    mu: Scalar,
    decay: Scalar,
    epsilon: Scalar,
    kappa: Number,
    weight: Number,
    rows: Rows | None = None,
) -> bool:
    """AdaGrad with a decaying mean; kappa and weight are numbers, or columns with one for each row."""
    if compiled is None or not fits(w, g, q, m):
        return False
    compiled.decayed_adagrad(w, q, g, m, rate, mu, decay, epsilon, 0.0, *_columns(kappa, weight), rows, w.shape[-1])
    return True


def rmsprop(
    w: Array,
    g: Array,
    q: Array,
    f: Array,
    m: Array | None,
    *,
    rate: Scalar,
    mu: Scalar,
    decay: Scalar,
    epsilon: Scalar,
    rest: Scalar,
    kappa: Number,
    weight: Number,
    rows: Rows | None = None,
) -> bool:
    """RMSProp; kappa and weight are numbers, or columns with one for each row; rest is 1 - rho."""
    if compiled is None or not fits(w, g, q, f, m):
        return False
    compiled.rmsprop(w, q, f, g, m, rate, mu, decay, epsilon, rest, *_columns(kappa, weight), rows, w.shape[-1])
    return True


def _columns(kappa: Number, weight: Number) -> tuple[Array, Array]:
    """Return both factors as flat arrays of one length."""
    one, other = _column(kappa), _column(weight)
    if len(one) != len(other):
        one, other = (np.ascontiguousarray(each) for each in np.broadcast_arrays(one, other))
    return one, other

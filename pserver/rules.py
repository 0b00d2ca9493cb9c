"""The update rules, in float32 and in place, and the settings that they are made from.

Each rule is one pass of `kernels.rules` where that is compiled, and numpy's operations, the same ones, where not.

A gradient is the sum over the samples of the batch, never a mean. Rounding follows the legacy: rates and decay
constants are float32, powers are formed in double and rounded once (spec of the legacy: FirstOrderOptimizer.cpp,
TrainingAlgorithmOp.cu of v0.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import rules as hot

Array = NDArray[np.float32]
Rows = NDArray[np.integer[Any]]
Number = np.float32 | Array  # one for all elements, or a column with one for each row


@dataclass(frozen=True)
class Optimization:
    """The settings that all parameters share; field names are those of the OptimizationConfig message.

    `max_average_window` is None where the config does not give it. What follows it matters to servers only; there
    `delta_add_rate` is that of one trainer: the config's divided by their number.
    """

    learning_method: str = "momentum"
    learning_rate: float = 1.0
    learning_rate_schedule: str = "constant"
    learning_rate_decay_a: float = 0.0
    learning_rate_decay_b: float = 0.0
    learning_rate_args: str = ""
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    ada_epsilon: float = 1e-6
    ada_rou: float = 0.95
    average_window: float = 0.0
    max_average_window: int | None = None
    algorithm: str = "sgd"
    async_lagged_grad_discard_ratio: float = 1.5
    delta_add_rate: float = 1.0

    @property
    def is_asynchronous(self) -> bool:
        """Whether servers step every trainer's gradient by itself."""
        return self.algorithm == "async_sgd"


@dataclass(frozen=True)
class ParameterSpec:
    """What a server must know of one parameter; field names are those of the ParameterConfig message.

    `sparse_update` is also set for sparse_remote_update. `row_width` is the number of elements in a row of the
    gradient's matrix.
    """

    name: str
    size: int
    learning_rate: float = 1.0
    momentum: float = 0.0
    decay_rate: float = 0.0
    gradient_clipping_threshold: float = 0.0
    is_static: bool = False
    decay_rate_l1: float = 0.0
    num_batches_regularization: int = 1
    sparse_update: bool = False
    row_width: int = 0


# ----- Rates -----


def adam_rate(rate: float, optimization: Optimization, step: int) -> np.float32:
    """Return adam's step size with both bias corrections; `step` is 1 for the first batch.

    The powers are double and rounded before they are subtracted; the rest is float32: with everything in double
    the step differs by 1e-5 of itself.
    """
    one = np.float32(1)
    power1 = np.float32(math.pow(np.float32(optimization.adam_beta1), step))
    power2 = np.float32(math.pow(np.float32(optimization.adam_beta2), step))
    return np.float32(np.float32(rate) * np.sqrt(one - power2) / (one - power1))


def adamax_rate(rate: float, optimization: Optimization, step: int) -> np.float32:
    """Return adamax's step size; unlike adam's, its bias correction is formed in double as a whole."""
    return np.float32(float(np.float32(rate)) / (1.0 - math.pow(np.float32(optimization.adam_beta1), step)))


def adagrad_rates(total: Array, recent: Array, out: Array, *, epsilon: np.float32) -> None:
    """Write the rate of every element: 1 / sqrt(S + s + epsilon)."""
    np.add(total, recent, out=out)
    _invert_root(out, epsilon)


def decayed_adagrad_rates(q: Array, out: Array, *, epsilon: np.float32) -> None:
    """Write the rate of every element: 1 / sqrt(q + epsilon)."""
    np.copyto(out, q)
    _invert_root(out, epsilon)


def rmsprop_rates(q: Array, f: Array, out: Array, *, epsilon: np.float32) -> None:
    """Write the rate of every element: 1 / sqrt(q - f^2 + epsilon)."""
    np.multiply(f, f, out=out)
    np.subtract(q, out, out=out)
    _invert_root(out, epsilon)


def _invert_root(x: Array, epsilon: np.float32) -> None:
    x += epsilon
    np.sqrt(x, out=x)
    np.reciprocal(x, out=x)


# ----- Rules: every array has the same shape; `scratch` is overwritten -----


def momentum(
    w: Array, g: Array, m: Array, scratch: Array, *, rate: np.float32, mu: np.float32, decay: np.float32
) -> None:
    """Take one step of SGD with momentum in place: m = mu*m - rate*(g + decay*w); w = w + m.

    The rate is inside the velocity m, so a new rate does not scale old velocity. L2 uses w before the step.
    """
    if hot.momentum(w, g, m, rate=rate, mu=mu, decay=decay):
        return
    if decay:
        np.multiply(w, decay, out=scratch)
        scratch += g
        scratch *= rate
    else:
        np.multiply(g, rate, out=scratch)
    m *= mu
    m -= scratch
    w += m


def sgd(w: Array, g: Array, scratch: Array, *, rate: np.float32, decay: np.float32) -> None:
    """Take one step of plain SGD in place: momentum with mu = 0, whose velocity need not be kept."""
    if hot.momentum(w, g, None, rate=rate, mu=0.0, decay=decay):
        return
    if decay:
        np.multiply(w, decay, out=scratch)
        scratch += g
        scratch *= rate
    else:
        np.multiply(g, rate, out=scratch)
    w -= scratch


def adam(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    beta1: np.float32,
    beta2: np.float32,
    epsilon: np.float32,
) -> None:
    """Take one step of Adam in place; `rate` comes from `adam_rate`, epsilon is added after the root."""
    if hot.adam(w, g, m, v, rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon):
        return
    one = np.float32(1)
    np.multiply(g, one - beta1, out=scratch)
    m *= beta1
    m += scratch
    np.multiply(g, g, out=scratch)
    scratch *= one - beta2
    v *= beta2
    v += scratch
    np.sqrt(v, out=scratch)
    scratch += epsilon
    np.multiply(m, rate, out=scratch2)
    scratch2 /= scratch
    w -= scratch2


def adamax(
    w: Array,
    g: Array,
    m: Array,
    u: Array,
    scratch: Array,
    *,
    rate: np.float32,
    beta1: np.float32,
    beta2: np.float32,
) -> None:
    """Take one step of Adamax in place; `rate` comes from `adamax_rate`. An element with u = 0 stays as it is."""
    if hot.adamax(w, g, m, u, rate=rate, beta1=beta1, beta2=beta2):
        return
    np.multiply(g, np.float32(1) - beta1, out=scratch)
    m *= beta1
    m += scratch
    np.abs(g, out=scratch)
    u *= beta2
    np.maximum(u, scratch, out=u)
    # no gradient was ever seen where u is 0, so m is 0 there too
    np.maximum(u, np.finfo(np.float32).tiny, out=scratch)
    np.divide(m, scratch, out=scratch)
    scratch *= rate
    w -= scratch


# The family of AdaGrad: m = mu*m - rate*r*(g + decay*w); w = w + m. Without momentum there is no m.


def adagrad(
    w: Array,
    g: Array,
    total: Array,
    recent: Array,
    m: Array | None,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    mu: np.float32,
    decay: np.float32,
    epsilon: np.float32,
) -> None:
    """Take one step of AdaGrad in place; now and then `recent` must be moved into `total`, for precision."""
    if hot.adagrad(w, g, total, recent, m, rate=rate, mu=mu, decay=decay, epsilon=epsilon):
        return
    np.multiply(g, g, out=scratch)
    recent += scratch
    adagrad_rates(total, recent, scratch, epsilon=epsilon)
    _descend(w, g, m, scratch, scratch2, rate=rate, mu=mu, decay=decay)


def decayed_adagrad(
    w: Array,
    g: Array,
    q: Array,
    m: Array | None,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    mu: np.float32,
    decay: np.float32,
    epsilon: np.float32,
    kappa: Number,
    weight: Number,
) -> None:
    """Take one step of AdaGrad with a decaying mean in place: q = kappa*q + weight*g^2."""
    if hot.decayed_adagrad(w, g, q, m, rate=rate, mu=mu, decay=decay, epsilon=epsilon, kappa=kappa, weight=weight):
        return
    _average_squares(q, g, scratch, kappa, weight)
    decayed_adagrad_rates(q, scratch, epsilon=epsilon)
    _descend(w, g, m, scratch, scratch2, rate=rate, mu=mu, decay=decay)


def rmsprop(
    w: Array,
    g: Array,
    q: Array,
    f: Array,
    m: Array | None,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    mu: np.float32,
    decay: np.float32,
    epsilon: np.float32,
    rho: np.float32,
    kappa: Number,
    weight: Number,
) -> None:
    """Take one step of the centred RMSProp in place: q = kappa*q + weight*g^2, f = kappa*f + (1 - rho)*g."""
    rest = np.float32(1) - rho
    if hot.rmsprop(
        w, g, q, f, m, rate=rate, mu=mu, decay=decay, epsilon=epsilon, rest=rest, kappa=kappa, weight=weight
    ):
        return
    _average_squares(q, g, scratch, kappa, weight)
    np.multiply(g, rest, out=scratch)
    f *= kappa
    f += scratch
    rmsprop_rates(q, f, scratch, epsilon=epsilon)
    _descend(w, g, m, scratch, scratch2, rate=rate, mu=mu, decay=decay)


def adadelta(
    w: Array,
    g: Array,
    a: Array,
    d: Array,
    r: Array,
    m: Array | None,
    scratch: Array,
    scratch2: Array,
    *,
    rate: np.float32,
    mu: np.float32,
    decay: np.float32,
    epsilon: np.float32,
    rho: np.float32,
) -> None:
    """Take one step of AdaDelta in place: a = rho*a + (1-rho)*g^2; r = sqrt((d + epsilon)/(a + epsilon)) with the old
    d; d = rho*d + (1-rho)*(g*r)^2, without L2 in it. `r` is written.
    """
    _average_squares(a, g, scratch, rho, np.float32(1) - rho)
    np.add(d, epsilon, out=r)
    np.add(a, epsilon, out=scratch)
    r /= scratch
    np.sqrt(r, out=r)
    np.multiply(g, r, out=scratch)
    scratch *= scratch
    scratch *= np.float32(1) - rho
    d *= rho
    d += scratch
    np.copyto(scratch, r)
    _descend(w, g, m, scratch, scratch2, rate=rate, mu=mu, decay=decay)


def _average_squares(q: Array, g: Array, scratch: Array, kappa: Number, weight: Number) -> None:
    np.multiply(g, g, out=scratch)
    scratch *= weight
    q *= kappa
    q += scratch


def _descend(
    w: Array,
    g: Array,
    m: Array | None,
    r: Array,
    scratch: Array,
    *,
    rate: np.float32,
    mu: np.float32,
    decay: np.float32,
) -> None:
    """Step with a rate for every element, which is overwritten."""
    r *= rate
    if decay:
        np.multiply(w, decay, out=scratch)
        scratch += g
        r *= scratch
    else:
        r *= g
    if m is not None:
        m *= mu
        m -= r
        w += m
    else:
        w -= r

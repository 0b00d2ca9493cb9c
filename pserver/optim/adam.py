"""Adam and Adamax. Copy this file for a new optimiser (`pserver.optim.methods` describes how).

Source: AdamParameterOptimizer and AdamaxParameterOptimizer of v0.10 (FirstOrderOptimizer.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pserver.optim.method import Method, Numbers, State
from pserver.optim.settings import Array, Optimization, Steps

# ----- Adam -----


def adam(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; w = w - rate*m / (sqrt(v) + epsilon).

    m and v are the first and second moment. `rate` includes the bias corrections (`adam_rate`). Epsilon is added after
    the root.
    """
    m, v = state
    rate, beta1, beta2, epsilon = numbers
    one, part, step = np.float32(1), scratch[0], scratch[1]
    np.multiply(g, one - beta1, out=part)
    m *= beta1
    m += part
    np.multiply(g, g, out=part)
    part *= one - beta2
    v *= beta2
    v += part
    np.sqrt(v, out=part)
    part += epsilon
    np.multiply(m, rate, out=step)
    step /= part
    w -= step


def adam_rate(rate: float, optimization: Optimization, step: int) -> np.float32:
    """Return Adam's step size with both bias corrections; `step` is 1 for the first batch.

    The powers are computed in double precision and rounded before the subtraction; all other operations use float32.
    With double precision in all operations, the step size would differ by a relative 1e-5.
    """
    one = np.float32(1)
    power1 = np.float32(math.pow(np.float32(optimization.adam_beta1), step))
    power2 = np.float32(math.pow(np.float32(optimization.adam_beta2), step))
    return np.float32(np.float32(rate) * np.sqrt(one - power2) / (one - power1))


class Adam(Method):
    """Adam, which ignores L2 and momentum as in v0.10."""

    rule = staticmethod(adam)
    kernel = "adam"
    arrays = ("first_moment", "second_moment")
    takes_velocity = False
    uses_schedule = uses_momentum = uses_decay = allows_sparse = False

    def start_step(self, rate: float, number: int) -> None:
        """Compute the constants of a step."""
        super().start_step(rate, number)
        self.rate = adam_rate(float(self.rate), self.optimization, number)

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, beta1, beta2 and epsilon."""
        o = self.optimization
        return self.rate, np.float32(o.adam_beta1), np.float32(o.adam_beta2), np.float32(o.adam_epsilon)


# ----- Adamax -----


def adamax(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: m = b1*m + (1-b1)*g; u = max(b2*u, |g|); w = w - rate*m/u.

    m is the first moment and u the decaying maximum of |g|. `rate` includes the bias correction (`adamax_rate`). An
    element with u = 0 does not change.
    """
    m, u = state
    rate, beta1, beta2 = numbers
    part = scratch[0]
    np.multiply(g, np.float32(1) - beta1, out=part)
    m *= beta1
    m += part
    np.abs(g, out=part)
    u *= beta2
    np.maximum(u, part, out=u)
    # an element with u = 0 has had no gradient, so m is also 0
    np.maximum(u, np.finfo(np.float32).tiny, out=part)
    np.divide(m, part, out=part)
    part *= rate
    w -= part


def adamax_rate(rate: float, optimization: Optimization, step: int) -> np.float32:
    """Return Adamax's step size. Unlike Adam's, its bias correction is computed entirely in double precision."""
    return np.float32(float(np.float32(rate)) / (1.0 - math.pow(np.float32(optimization.adam_beta1), step)))


class Adamax(Method):
    """Adamax: Adam with the infinity norm. It ignores L2 and momentum as in v0.10."""

    rule = staticmethod(adamax)
    kernel = "adamax"
    arrays = ("first_moment", "largest")
    takes_velocity = False
    uses_schedule = uses_momentum = uses_decay = allows_sparse = False

    def start_step(self, rate: float, number: int) -> None:
        """Compute the constants of a step."""
        super().start_step(rate, number)
        self.rate = adamax_rate(float(self.rate), self.optimization, number)

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, beta1 and beta2."""
        return self.rate, np.float32(self.optimization.adam_beta1), np.float32(self.optimization.adam_beta2)

"""Stochastic gradient descent with or without momentum, and its variants.

Source: SgdOptimizer, TorchMomentum and SparseMomentumParameterOptimizer of v0.10 (FirstOrderOptimizer.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pserver.optim.method import Hyperparameters, Method, Numbers, State
from pserver.optim.settings import Array, Optimization, Steps

ALPHA_LIMIT = np.float32(1e6)  # above this alpha, sparse_momentum restarts its sums; source: v0.10


def momentum(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step of SGD in place: m = mu*m - rate*(g + decay*w); w = w + m. Without m, w = w - rate*(g + decay*w).

    The velocity m includes the rate, so a new rate does not scale the old velocity. L2 uses w before the step.
    """
    (m,) = state
    rate, mu, decay = numbers
    step = scratch[0]
    if decay:
        np.multiply(w, decay, out=step)
        step += g
        step *= rate
    else:
        np.multiply(g, rate, out=step)
    if m is None:
        w -= step
    else:
        m *= mu
        m -= step
        w += m


class Momentum(Method):
    """SGD, with momentum if the parameter's momentum is not 0."""

    rule = staticmethod(momentum)
    kernel = "momentum"
    allows_lazy_rows = True

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu and decay."""
        return self.rate, self.mu, self.decay


class TorchMomentum(Momentum):
    """SGD with momentum; the rate is multiplied by 1 - mu, except in the very first batch."""

    def start_step(self, rate: float, number: int) -> None:
        """Compute the constants of a step."""
        factor = 1.0 if number == 1 else float(np.float32(1.0 - self.hyperparameters.momentum))
        self.rate = np.float32(rate * self.hyperparameters.learning_rate * factor)


def sparse_momentum(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Update rows by one step in place: u -= a*g; v += t*a*g; w = u*p + v*q.

    A row that takes its first step begins with v = w. The factor a is alpha*rate, t is tau, p is tau/beta + 1/alpha and
    q is 1/beta; `SparseMomentum.start_step` updates alpha, beta and tau in every batch.
    """
    u, v = state
    is_first, step, tau_step, of_u, of_v = numbers
    part = scratch[0]
    if is_first is not None:
        np.copyto(v, w, where=is_first)
    np.multiply(g, step, out=part)
    u -= part
    np.multiply(g, tau_step, out=part)
    v += part
    np.multiply(u, of_u, out=w)
    np.multiply(v, of_v, out=part)
    w += part


class SparseMomentum(Momentum):
    """Momentum for rows that most batches do not use; dense parameters use the rule `momentum`.

    Two running sums u and v represent the velocity that a row would have if it had taken part in every step.
    """

    saved_scalars = ("rate", "alpha", "beta", "tau")

    def __init__(self, optimization: Optimization, hyperparameters: Hyperparameters) -> None:
        super().__init__(optimization, hyperparameters)
        if hyperparameters.is_sparse:
            self.rule, self.kernel = sparse_momentum, ""
            self.arrays, self.takes_velocity = ("momentum_u", "momentum_v"), False
        self._restart()

    def _restart(self) -> None:
        self.alpha, self.beta, self.tau = np.float32(1), np.float32(1), np.float32(-1)

    def start_step(self, rate: float, number: int) -> None:
        """Compute the constants of a step."""
        super().start_step(rate, number)
        if self.hyperparameters.is_sparse:
            self.tau += self.beta / self.alpha
            self.alpha /= self.mu
            self.beta /= np.float32(1) + self.decay * self.rate

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return the numbers of `sparse_momentum`, or of `momentum` for a dense parameter."""
        if not self.hyperparameters.is_sparse:
            return super().numbers(last)
        step = self.alpha * self.rate
        of_u = np.float32(float(self.tau / self.beta) + 1.0 / float(self.alpha))
        return None if last is None else last == 0, step, self.tau * step, of_u, np.float32(1.0 / float(self.beta))

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Restart the sums before they become too large."""
        if self.hyperparameters.is_sparse and self.alpha > ALPHA_LIMIT:
            state["momentum_u"][...] /= self.alpha
            state["momentum_v"][...] = w
            self._restart()

"""AdaGrad and related methods: every element has its own rate r.

All methods of this module end in the step m = mu*m - rate*r*(g + decay*w); w = w + m. Here w is the value, g the
gradient, m the velocity, mu the momentum, `rate` the learning rate and `decay` the L2 rate. Without momentum there is
no m, and w = w - rate*r*(g + decay*w).

Source: FirstOrderOptimizer.cpp and TrainingAlgorithmOp.cu of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pserver.optim.method import Hyperparameters, Method, Numbers, State
from pserver.optim.settings import Array, Optimization, Steps

FOLD_PERIOD = 16384  # number of batches after which adagrad adds its recent sums to its old sums; source: v0.10

Number = np.float32 | Array  # one number for all elements, or a column with one number for each row


class _Adaptive(Method):
    """The common part of all methods of this module, with the numbers that every rule needs."""

    has_rates = True

    def __init__(self, optimization: Optimization, hyperparameters: Hyperparameters) -> None:
        super().__init__(optimization, hyperparameters)
        self.epsilon = np.float32(optimization.ada_epsilon)
        self.rho = np.float32(optimization.ada_rou)

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu, decay and epsilon."""
        return self.rate, self.mu, self.decay, self.epsilon


# ----- AdaGrad -----


def adagrad(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: s = s + g^2; r = 1 / sqrt(S + s + epsilon).

    s is the sum of recent squares and S the sum of older squares.
    """
    total, recent, m = state
    rate, mu, decay, epsilon = numbers
    r = scratch[0]
    np.multiply(g, g, out=r)
    recent += r
    adagrad_rates(total, recent, epsilon, r)
    _descend(w, g, m, r, (rate, mu, decay), scratch[1])


def adagrad_rates(total: Array, recent: Array, epsilon: np.float32, out: Array) -> None:
    """Write the rate of every element: 1 / sqrt(S + s + epsilon)."""
    np.add(total, recent, out=out)
    _invert_root(out, epsilon)


class AdaGrad(_Adaptive):
    """AdaGrad: steps are divided by the root of the sum of all squared gradients."""

    rule = staticmethod(adagrad)
    kernel = "adagrad"
    arrays = ("squares_before", "squares")
    uses_schedule = False
    allows_lazy_rows = True

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Periodically add the recent sums to the old sums, because adding a square to a large sum loses precision."""
        if self.number % FOLD_PERIOD == 0:
            state["squares_before"][...] += state["squares"]
            state["squares"][...] = 0

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write each element's own rate in its last step to `out`."""
        adagrad_rates(state["squares_before"], state["squares"], self.epsilon, out)


# ----- AdaGrad with decaying averages -----


class DecayingAverages(_Adaptive):
    """The common part of methods with decaying averages. At the next step of a row, its averages decay once for each
    batch since its last step.
    """

    allows_lazy_rows = True

    def factors(self, last: Steps | None) -> tuple[Number, Number]:
        """Return kappa, which multiplies the averages, and the weight of the new square, which is 1 in the first
        update.
        """
        rest = np.float32(1) - self.rho
        if last is None:
            return self.rho, np.float32(1) if self.number == 1 else rest
        # for lazy rows of a dense parameter, only the first batch of the run is a first update
        is_first = last == 0 if self.hyperparameters.is_sparse else np.full(last.shape, self.number == 1)
        return self._power(self.number - last), np.where(is_first, np.float32(1), rest)

    def _power(self, steps: Steps) -> Array:
        return np.power(float(self.rho), steps).astype(np.float32)

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Decay the averages of elements that had no gradient for a number of steps."""
        kept = self._power(np.asarray(steps, np.int64))
        for name in self.arrays:
            state[name][...] *= kept


def decayed_adagrad(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: q = kappa*q + weight*g^2; r = 1 / sqrt(q + epsilon).

    q is the decaying mean of squared gradients; `DecayingAverages.factors` returns kappa and weight.
    """
    q, m = state
    rate, mu, decay, epsilon, kappa, weight = numbers
    r = scratch[0]
    _average_squares(q, g, kappa, weight, r)
    decayed_adagrad_rates(q, epsilon, r)
    _descend(w, g, m, r, (rate, mu, decay), scratch[1])


def decayed_adagrad_rates(q: Array, epsilon: np.float32, out: Array) -> None:
    """Write the rate of every element: 1 / sqrt(q + epsilon)."""
    np.copyto(out, q)
    _invert_root(out, epsilon)


class DecayedAdaGrad(DecayingAverages):
    """RMSProp: AdaGrad with a decaying mean of squared gradients instead of their sum."""

    rule = staticmethod(decayed_adagrad)
    kernel = "decayed_adagrad"
    arrays = ("mean_square",)

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu, decay, epsilon, kappa and weight."""
        return *super().numbers(last), *self.factors(last)

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write each element's own rate in its last step to `out`."""
        decayed_adagrad_rates(state["mean_square"], self.epsilon, out)


def rmsprop(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: q = kappa*q + weight*g^2; f = kappa*f + rest*g; r = 1 / sqrt(q - f^2 + epsilon).

    q is the decaying mean of squared gradients, and f is the decaying mean of gradients; `rest` is 1 - rho.
    """
    q, f, m = state
    rate, mu, decay, epsilon, rest, kappa, weight = numbers
    r = scratch[0]
    _average_squares(q, g, kappa, weight, r)
    np.multiply(g, rest, out=r)
    f *= kappa
    f += r
    rmsprop_rates(q, f, epsilon, r)
    _descend(w, g, m, r, (rate, mu, decay), scratch[1])


def rmsprop_rates(q: Array, f: Array, epsilon: np.float32, out: Array) -> None:
    """Write the rate of every element: 1 / sqrt(q - f^2 + epsilon)."""
    np.multiply(f, f, out=out)
    np.subtract(q, out, out=out)
    _invert_root(out, epsilon)


class RMSProp(DecayingAverages):
    """The centered form of RMSProp: the square of the mean gradient is subtracted from the mean square."""

    rule = staticmethod(rmsprop)
    kernel = "rmsprop"
    arrays = ("mean_square", "mean_gradient")

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu, decay, epsilon, 1 - rho, kappa and weight."""
        return *super().numbers(last), np.float32(1) - self.rho, *self.factors(last)

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write each element's own rate in its last step to `out`."""
        rmsprop_rates(state["mean_square"], state["mean_gradient"], self.epsilon, out)


# ----- AdaDelta -----


def adadelta(w: Array, g: Array, state: State, numbers: Numbers, scratch: Sequence[Array]) -> None:
    """Take one step in place: a = rho*a + (1-rho)*g^2; r = sqrt((d + epsilon) / (a + epsilon)) with the old d;
    d = rho*d + (1-rho)*(g*r)^2.

    a is the decaying mean of squared gradients, and d is the decaying mean of squared steps; g does not include L2. The
    rates r are part of the state.
    """
    a, d, r, m = state
    rate, mu, decay, epsilon, rho = numbers
    part, rest = scratch[0], np.float32(1) - rho
    _average_squares(a, g, rho, rest, part)
    np.add(d, epsilon, out=r)
    np.add(a, epsilon, out=part)
    r /= part
    np.sqrt(r, out=r)
    np.multiply(g, r, out=part)
    part *= part
    part *= rest
    d *= rho
    d += part
    np.copyto(part, r)
    _descend(w, g, m, part, (rate, mu, decay), scratch[1])


class AdaDelta(_Adaptive):
    """AdaDelta: the size of a step is proportional to a decaying mean of the sizes of earlier steps."""

    rule = staticmethod(adadelta)
    arrays = ("mean_square", "mean_square_step", "rates")  # the rates cannot be computed from the other arrays
    allows_sparse = False

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return rate, mu, decay, epsilon and rho."""
        return *super().numbers(last), self.rho

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write each element's own rate in its last step to `out`."""
        np.copyto(out, state["rates"])


# ----- Parts of the rules -----


def _invert_root(x: Array, epsilon: np.float32) -> None:
    x += epsilon
    np.sqrt(x, out=x)
    np.reciprocal(x, out=x)


def _average_squares(q: Array, g: Array, kappa: Number, weight: Number, scratch: Array) -> None:
    np.multiply(g, g, out=scratch)
    scratch *= weight
    q *= kappa
    q += scratch


def _descend(w: Array, g: Array, m: Array | None, r: Array, numbers: Numbers, scratch: Array) -> None:
    """Update `w`, and `m` if it exists, with a separate rate for every element. `r` is overwritten."""
    rate, mu, decay = numbers
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

"""Lazy updates: when a trainer requests a row, the row catches up on the steps that did not touch it.

As in v0.10, on synchronous servers every row takes every step. A step without gradient also changes a row: velocity
moves the row, and decay moves it towards zero. For the rules in this module, the result of many such steps has a closed
form. A step therefore costs time only for the rows that its batch touches. The results equal the results of single
steps within rounding.

Source: spec/distributed.md 3.6, spec/trainer.md 4.3, 4.12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.tables import RowIds
from pserver.optim.adagrad import DecayingAverages
from pserver.optim.method import Method
from pserver.optim.settings import Array, Steps
from pserver.optim.weight_decay import Decay

Doubles = npt.NDArray[np.float64]

HIGHEST = 500.0  # limit of the summed exponents (exp of a double overflows at 709); above the limit, all rows catch up


class LazyRows:
    """Rows whose values do not change while no batch touches them: plain SGD and AdaGrad, without decay.

    Class attributes: `moves`: whether values change in steps without gradient, as in some subclasses.  `counts`:
    whether the number of each row's last step is needed.

    Args of `catch_up`: w, state: the values and the optimiser's arrays of some rows, which are changed in place. rows:
    numbers of these rows. missed: a column with the number of steps that each row has skipped.
    """

    moves = False
    counts = False

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows up to date with the last completed step."""

    def end_step(self, rate: np.float32) -> None:
        """Record the end of a step. Args: rate: the scheduled rate multiplied by the parameter's own factor."""

    def note(self, rows: RowIds) -> None:
        """Record that these rows are up to date."""

    @property
    def is_full(self) -> bool:
        """Whether all rows must catch up now; the caller then calls `restart`."""
        return False

    def restart(self) -> None:
        """Reset the counts of steps, because all rows are up to date."""


class LazyState(LazyRows):
    """Rows whose decaying averages change in steps without gradient, while their values do not change.

    The rule needs the number of each row's last step.
    """

    counts = True


class LazyMomentum(LazyRows):
    """Rows that move with their velocity m in steps without gradient.

    With momentum mu, after k steps without gradient the value w is w + m (mu + ... + mu^k), and m is m mu^k.
    """

    moves = counts = True

    def __init__(self, momentum: float) -> None:
        self._mu = float(np.float32(momentum))

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows up to date with the last completed step."""
        steps = missed.astype(np.float64)
        kept = np.power(self._mu, steps)
        way = steps if self._mu == 1 else self._mu * (1 - kept) / (1 - self._mu)
        velocity = state["velocity"]
        w += velocity * way.astype(np.float32)
        velocity *= kept.astype(np.float32)


class LazyDecay(LazyRows):
    """Rows that decay at a common rate: w <- sign(w) max(|w| - a_t, 0) / f_t in step t.

    Here a_t is rate * l1, and f_t is 1 + rate * l2. Let C_t be the sum of log f up to t, and B_t the sum of
    a_t exp(C_(t-1)). From step s to step t, |w| becomes |w| exp(C_s - C_t) - (B_t - B_s) exp(-C_t), and stays zero once
    it is zero.

    Args: sums: C and B after the last step, and after each row's last step; the shard stores this array.
    Shapes: sums: (1 + rows, 2).
    """

    moves = counts = True

    def __init__(self, decay: Decay, sums: Doubles) -> None:
        self._decay = decay
        self._now, self._before = sums[0], sums[1:]

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows up to date with the last completed step."""
        before = self._before.take(rows, axis=0)
        exponent, loss = self._now
        shrink(w, np.exp(before[:, :1] - exponent), (loss - before[:, 1:]) * np.exp(-exponent))

    def end_step(self, rate: np.float32) -> None:
        """Add the step to the sums."""
        threshold, strength = float(rate) * self._decay.l1, float(rate) * self._decay.l2
        self._now[1] += threshold * np.exp(self._now[0])
        self._now[0] += np.log1p(strength)

    def note(self, rows: RowIds) -> None:
        """Store the current sums for these rows."""
        self._before[rows] = self._now

    @property
    def is_full(self) -> bool:
        """Whether the exponents are too large."""
        return bool(self._now[0] > HIGHEST)

    def restart(self) -> None:
        """Reset the sums."""
        self._now[:] = 0
        self._before.fill(0)


class LazyElementDecay(LazyRows):
    """Rows whose elements decay at their own rates (adagrad). The rates change only when a batch touches the row."""

    moves = counts = True

    def __init__(self, decay: Decay, method: Method) -> None:
        self._decay, self._method = decay, method

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows up to date with the last completed step."""
        rates = np.empty_like(w)
        self._method.rates(state, rates)
        rate = float(self._method.rate) * rates.astype(np.float64)
        if not self._decay.l2:
            shrink(w, np.ones_like(missed), missed * (rate * self._decay.l1))
            return
        kept = np.exp(-missed * np.log1p(rate * self._decay.l2))
        shrink(w, kept, self._decay.l1 / self._decay.l2 * (1 - kept))


def shrink(w: Array, kept: Doubles, loss: Doubles) -> None:
    """Set w to sign(w) max(|w| kept - loss, 0), in place. Shapes: kept, loss: the shape of w, or one column."""
    size = np.abs(w)
    size *= kept.astype(np.float32)
    size -= loss.astype(np.float32)
    np.maximum(size, np.float32(0), out=size)
    np.copysign(size, w, out=w)


def find_lazy_rows(
    method: Method, decay: Decay | None, *, is_averaged: bool, make_sums: Callable[[], Doubles]
) -> LazyRows | None:
    """Return the lazy update of a table's rows; None if every row must take every step.

    Lazy updates are not possible with adam, adamax and adadelta. With rmsprop and decayed_adagrad, whose rates come
    from decaying averages, lazy updates are possible only without decay and momentum. If values are averaged, lazy
    updates are also possible only without decay and momentum. Decay and momentum together exclude lazy updates with
    every method.

    Args: make_sums: a function that returns an array of zeros, in which `LazyDecay` stores its sums.
    """
    if not method.allows_lazy_rows:
        return None
    has_decaying_state = isinstance(method, DecayingAverages)
    if method.hyperparameters.momentum:
        return None if has_decaying_state or decay or is_averaged else LazyMomentum(method.hyperparameters.momentum)
    if decay is None:
        return LazyState() if has_decaying_state else LazyRows()
    if has_decaying_state or is_averaged:
        return None
    if decay.period > 1:  # all rows decay together, at the end of each period
        return LazyRows()
    return LazyElementDecay(decay, method) if method.has_rates else LazyDecay(decay, make_sums())

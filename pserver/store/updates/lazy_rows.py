"""Lazy updates: the steps that did not touch a row are made up for at once, when a trainer asks for the row.

On synchronous servers every row takes every step, as in the legacy, also rows without gradient: a velocity moves them,
decay pulls them to zero. For the rules here the sum of many such steps has a closed form, so that a step costs only the
rows that it touches. The results are those of single steps within rounding.

Source: spec/distributed.md 3.6, spec/trainer.md 4.3, 4.12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from kernels.tables import RowIds
from pserver.optim.adagrad import DecayingAverages
from pserver.optim.method import Method
from pserver.optim.settings import Array, Steps
from pserver.optim.weight_decay import Decay

Doubles = npt.NDArray[np.float64]

HIGHEST = 500.0  # of the summed exponents (exp of a double overflows at 709): beyond it all rows are caught up


class LazyRows:
    """Rows whose values stay as they are while nothing touches them: plain SGD and AdaGrad, without decay.

    Class attributes: `moves`: whether values change in steps without gradient, in the subclasses below.  `counts`:
    whether it matters which step a row took last.
    Args of `catch_up`: w, state: of some rows, changed in place.  rows: their numbers.  missed: how many steps each
        has not taken, a column.
    """

    moves = False
    counts = False

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows forward to the last step that was ended."""

    def end_step(self, rate: np.float32) -> None:
        """End a step at this rate: the scheduled one times the parameter's."""

    def note(self, rows: RowIds) -> None:
        """Record that these rows are up to date."""

    @property
    def is_full(self) -> bool:
        """Whether all rows must be caught up now, and `restart` called."""
        return False

    def restart(self) -> None:
        """Forget the steps so far: all rows are up to date."""


class LazyState(LazyRows):
    """Rows whose values stay but whose averages decay; the rule itself makes up for that when it gets the last step."""

    counts = True


class LazyMomentum(LazyRows):
    """Rows that their velocity m moves: after k steps the value is w + m (mu + ... + mu^k), the velocity m mu^k."""

    moves = counts = True

    def __init__(self, momentum: float) -> None:
        self._mu = float(np.float32(momentum))

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows forward to the last step that was ended."""
        steps = missed.astype(np.float64)
        kept = np.power(self._mu, steps)
        way = steps if self._mu == 1 else self._mu * (1 - kept) / (1 - self._mu)
        velocity = state["velocity"]
        w += velocity * way.astype(np.float32)
        velocity *= kept.astype(np.float32)


class LazyDecay(LazyRows):
    """Rows pulled to zero at a rate that all share: w <- sign(w) max(|w| - a_t, 0) / f_t in step t.

    With C_t the sum of the log f up to t, and B_t that of a_t exp(C_(t-1)), a row goes from step s to step t by
    |w| exp(C_s - C_t) - (B_t - B_s) exp(-C_t), and stays at zero once it is there.

    Args: sums: C and B after the last step, and after each row's last step, kept by the caller.
    Shapes: sums: (1 + rows, 2).
    """

    moves = counts = True

    def __init__(self, decay: Decay, sums: Doubles) -> None:
        self._decay = decay
        self._now, self._before = sums[0], sums[1:]

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows forward to the last step that was ended."""
        before = self._before.take(rows, axis=0)
        exponent, loss = self._now
        shrink(w, np.exp(before[:, :1] - exponent), (loss - before[:, 1:]) * np.exp(-exponent))

    def end_step(self, rate: np.float32) -> None:
        """Add the step to the sums."""
        threshold, strength = float(rate) * self._decay.l1, float(rate) * self._decay.l2
        self._now[1] += threshold * np.exp(self._now[0])
        self._now[0] += np.log1p(strength)

    def note(self, rows: RowIds) -> None:
        """Keep the sums as those of these rows."""
        self._before[rows] = self._now

    @property
    def is_full(self) -> bool:
        """Whether the exponents become too large."""
        return bool(self._now[0] > HIGHEST)

    def restart(self) -> None:
        """Begin the sums anew."""
        self._now[:] = 0
        self._before.fill(0)


class LazyElementDecay(LazyRows):
    """Rows pulled to zero at rates of their own, which stay as they are while nothing touches them (adagrad)."""

    moves = counts = True

    def __init__(self, decay: Decay, method: Method) -> None:
        self._decay, self._method = decay, method

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows forward to the last step that was ended."""
        rates = np.empty_like(w)
        self._method.rates(state, rates)
        rate = float(self._method.rate) * rates.astype(np.float64)
        if not self._decay.l2:
            shrink(w, np.ones_like(missed), missed * (rate * self._decay.l1))
            return
        kept = np.exp(-missed * np.log1p(rate * self._decay.l2))
        shrink(w, kept, self._decay.l1 / self._decay.l2 * (1 - kept))


def shrink(w: Array, kept: Doubles, loss: Doubles) -> None:
    """Let w = sign(w) max(|w| kept - loss, 0), in place. Shapes: kept, loss: as w, or columns."""
    size = np.abs(w)
    size *= kept.astype(np.float32)
    size -= loss.astype(np.float32)
    np.maximum(size, np.float32(0), out=size)
    np.copysign(size, w, out=w)


def find_lazy_rows(
    method: Method, decay: Decay | None, *, is_averaged: bool, make_sums: Callable[[], Doubles]
) -> LazyRows | None:
    """Return how the rows of a table are lazy; None if they cannot be, so that every row takes every step.

    They cannot be with adam, adamax and adadelta; with decay or momentum where the averages that make an element's rate
    decay (rmsprop, decayed_adagrad); and where values are averaged that decay or momentum move.

    Args: make_sums: returns the zeros that `LazyDecay` keeps its sums in.
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
    if decay.period > 1:  # all rows decay together, once in each period
        return LazyRows()
    return LazyElementDecay(decay, method) if method.has_rates else LazyDecay(decay, make_sums())

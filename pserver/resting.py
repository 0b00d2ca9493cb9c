"""What the rows of a table miss in steps that do not touch them, made up for in one go when somebody looks at them.

On synchronous servers every row takes every step, as in the legacy, also rows without gradient: a velocity carries them
on, decay pulls them to zero. For the rules here the sum of many such steps is known, so that a step costs what the
rows cost that it touches. The results are those of single steps but for rounding.

Source: spec/distributed.md 3.6, spec/trainer.md 4.3, 4.12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from kernels.tables import RowIds
from pserver.methods.adagrad import Decaying
from pserver.methods.base import Method, Steps
from pserver.regularization import Decay
from pserver.rules import Array

Doubles = npt.NDArray[np.float64]

HIGHEST = 500.0  # of the exponents that are added up: beyond it all rows are caught up and counting begins anew


class Resting:
    """Rows whose values stay as they are while nothing touches them; `moves` says that they do not.

    Args of `catch_up`: w, state: of some rows, changed in place.  rows: their numbers.  missed: the steps that each
        has not taken, a column.
    """

    moves = False
    counts = False  # whether it matters which step a row took last

    def catch_up(self, w: Array, state: Mapping[str, Array], rows: RowIds, missed: Steps) -> None:
        """Bring rows forward to the last step that was ended."""

    def end_step(self, rate: np.float32) -> None:
        """End a step at this rate (that of the parameter, scheduled)."""

    def note(self, rows: RowIds) -> None:
        """Take it that these rows are up to date."""

    @property
    def is_full(self) -> bool:
        """Whether all rows must be caught up now, and `restart` called."""
        return False

    def restart(self) -> None:
        """Forget the steps so far: all rows are up to date."""


class Fading(Resting):
    """Rows whose values stay but whose averages decay: the rule itself makes up for that, told since when."""

    counts = True


class Coasting(Resting):
    """Rows that a velocity carries on: after k steps w + m (mu + ... + mu^k), and m mu^k."""

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


class Pulled(Resting):
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


class PulledByElement(Resting):
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


def find_resting(
    method: Method, decay: Decay | None, *, is_averaged: bool, make_sums: Callable[[], Doubles]
) -> Resting | None:
    """Return how rows of a table rest; None if they cannot, so that every row takes every step.

    They cannot with adam, adamax and adadelta, with decay or momentum where the averages that make an element's rate
    decay (rmsprop, decayed_adagrad), and where moving values are averaged.

    Args: make_sums: returns zeros for `Pulled`.
    """
    if not method.rests:
        return None
    is_fading = isinstance(method, Decaying)
    if method.traits.momentum:
        return None if is_fading or decay or is_averaged else Coasting(method.traits.momentum)
    if decay is None:
        return Fading() if is_fading else Resting()
    if is_fading or is_averaged:
        return None
    if decay.period > 1:  # then all rows are pulled at once, now and then
        return Resting()
    return PulledByElement(decay, method) if method.has_rates else Pulled(decay, make_sums())

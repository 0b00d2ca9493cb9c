"""SGD with momentum, and its forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels import rules as hot
from pserver import rules
from pserver.methods.base import Method, Steps, Traits
from pserver.rules import Array, Optimization, Rows

ALPHA_LIMIT = np.float32(1e6)  # of sparse_momentum, which starts afresh beyond it


class Momentum(Method):
    """SGD, with momentum where the parameter has one."""

    rests = True

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        if self.traits.momentum:
            rules.momentum(w, g, state["velocity"], scratch[0], rate=self.rate, mu=self.mu, decay=self.decay)
        else:
            rules.sgd(w, g, scratch[0], rate=self.rate, decay=self.decay)

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are."""
        return hot.momentum(w, g, state.get("velocity"), rate=self.rate, mu=self.mu, decay=self.decay, rows=rows)


class TorchMomentum(Momentum):
    """Momentum whose rate is multiplied by 1 - mu, but for the very first batch."""

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        factor = 1.0 if number == 1 else float(np.float32(1.0 - self.traits.momentum))
        self.rate = np.float32(rate * self.traits.learning_rate * factor)


class SparseMomentum(Momentum):
    """Momentum for rows that most batches do not touch; dense parameters take the plain rule.

    Two running sums u and v stand for the velocity that a row would have if it had taken part in every step.
    """

    averages = ("momentum_u", "momentum_v")
    carried = ("rate", "alpha", "beta", "tau")

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        super().__init__(optimization, traits)
        self._restart()

    def _restart(self) -> None:
        self.alpha, self.beta, self.tau = np.float32(1), np.float32(1), np.float32(-1)

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that go with the values."""
        if self.traits.is_sparse:
            return self.averages
        return ("velocity",) if self.traits.momentum else ()

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        if self.traits.is_sparse:
            self.tau += self.beta / self.alpha
            self.alpha /= self.mu
            self.beta /= np.float32(1) + self.decay * self.rate

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        if not self.traits.is_sparse:
            super().update(w, g, state, scratch)
            return
        u, v, part = state["momentum_u"], state["momentum_v"], scratch[0]
        if last is not None:
            np.copyto(v, w, where=last == 0)
        step = self.alpha * self.rate
        np.multiply(g, step, out=part)
        u -= part
        np.multiply(g, self.tau * step, out=part)
        v += part
        np.multiply(u, np.float32(float(self.tau / self.beta) + 1.0 / float(self.alpha)), out=w)
        np.multiply(v, np.float32(1.0 / float(self.beta)), out=part)
        w += part

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are: not compiled."""
        return False

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Start afresh before the sums become too large."""
        if self.traits.is_sparse and self.alpha > ALPHA_LIMIT:
            state["momentum_u"][...] /= self.alpha
            state["momentum_v"][...] = w
            self._restart()

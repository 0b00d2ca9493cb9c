"""Adam and Adamax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pserver import rules
from pserver.methods.base import Method, Steps
from pserver.rules import Array


class Adam(Method):
    """Adam."""

    uses_schedule = uses_momentum = uses_decay = takes_rows = False
    averages = ("first_moment", "second_moment")

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        self.rate = rules.adam_rate(float(self.rate), self.optimization, number)

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adam(
            w,
            g,
            state["first_moment"],
            state["second_moment"],
            scratch[0],
            scratch[1],
            rate=self.rate,
            beta1=np.float32(self.optimization.adam_beta1),
            beta2=np.float32(self.optimization.adam_beta2),
            epsilon=np.float32(self.optimization.adam_epsilon),
        )


class Adamax(Method):
    """Adam with the infinity norm."""

    uses_schedule = uses_momentum = uses_decay = takes_rows = False
    averages = ("first_moment", "largest")

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step."""
        super().start_step(rate, number)
        self.rate = rules.adamax_rate(float(self.rate), self.optimization, number)

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place."""
        rules.adamax(
            w,
            g,
            state["first_moment"],
            state["largest"],
            scratch[0],
            rate=self.rate,
            beta1=np.float32(self.optimization.adam_beta1),
            beta2=np.float32(self.optimization.adam_beta2),
        )

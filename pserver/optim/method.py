"""The base of all learning methods: an update rule, its state, and functions that update parameters by the rule.

**One signature.** An update rule is a function `rule(w, g, state, numbers, scratch)`:

    w        the values, changed in place
    g        the gradient: the sum over the samples of the batch, never a mean; not changed
    state    the arrays of `Method.arrays` in that order, then the velocity (None without momentum) if the method
             `takes_velocity`; changed in place
    numbers  the result of `Method.numbers`: float32, or columns with one number for each row
    scratch  at least two arrays that the rule may overwrite

All arrays have one shape. If a rule also exists in `paddle_base/kernels/rules.c`, the function in C has these arguments
in this order: `name(w, g, *state, *numbers, rows, width)`. The rule and the C function round every operation in the
same way, and therefore give bit-equal results.

**Rounding** follows v0.10. Rates and decay constants are float32. Powers are computed in double and rounded once.
Source: FirstOrderOptimizer.cpp and TrainingAlgorithmOp.cu of v0.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from paddle_base.kernels import rules
from pserver.optim.settings import Array, Optimization, Rows, Steps

VELOCITY = "velocity"

State = Sequence[Any]  # arrays; the last array, the velocity, may be None
Numbers = Sequence[Any]
Rule = Callable[[Array, Array, State, Numbers, Sequence[Array]], None]


@dataclass(frozen=True)
class Hyperparameters:
    """The settings that an optimisation method uses for a parameter.

    `learning_rate` multiplies the scheduled rate. `decay` is the L2 rate inside the step; it is 0 if L2 is applied
    separately. `is_sparse` says whether a row takes steps only in batches that use the row.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    decay: float = 0.0
    is_sparse: bool = False


class Method:
    """One learning method for parameters with the same hyperparameters: a rule, its state and its constants.

    Class attributes of the rule (sparse_momentum sets them in each instance):
        rule: the update rule.  kernel: name of the rule in `paddle_base/kernels/rules.c`; "" if there is no compiled
        rule. arrays: the names of the state's arrays, in the rule's order. takes_velocity: whether the rule expects the
        velocity after the arrays of the state.
    Class attributes of the settings:
        uses_schedule, uses_momentum, uses_decay: whether the method uses the learning-rate schedule, momentum and L2.
        separates_decay: whether L2 is always applied separately from the step.
        allows_sparse: whether rows may take no step in batches that do not use them.
        allows_lazy_rows: whether a step without gradient, momentum and L2 leaves the values unchanged.
        has_rates: whether every element has its own rate.
        saved_scalars: the float32 attributes that a checkpoint needs in addition to the arrays.
    """

    rule: Rule
    kernel: str = ""
    arrays: tuple[str, ...] = ()
    takes_velocity: bool = True
    uses_schedule: ClassVar[bool] = True
    uses_momentum: ClassVar[bool] = True
    uses_decay: ClassVar[bool] = True
    separates_decay: ClassVar[bool] = False
    allows_sparse: ClassVar[bool] = True
    allows_lazy_rows: ClassVar[bool] = False
    has_rates: ClassVar[bool] = False
    saved_scalars: ClassVar[tuple[str, ...]] = ("rate",)

    def __init__(self, optimization: Optimization, hyperparameters: Hyperparameters) -> None:
        self.optimization = optimization
        self.hyperparameters = hyperparameters
        self.mu, self.decay = np.float32(hyperparameters.momentum), np.float32(hyperparameters.decay)
        self.rate = np.float32(0)
        self.number = 0

    # ----- Defined by each method in addition to its rule -----

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return the argument `numbers` of the rule for this step.

        Args: last: for rows, the number of each row's last step (0: the row has had no step); None: all rows took part
            in every step.
        """
        raise NotImplementedError

    def start_step(self, rate: float, number: int) -> None:
        """Compute the constants of a step.

        Args: rate: the scheduled rate. number: number of the batch since the start of the run, 1 for the first batch.
        """
        self.rate = np.float32(rate * self.hyperparameters.learning_rate)
        self.number = number

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Perform work that is due for all elements after a step; most methods do nothing."""

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write each element's own rate in its last step to `out`; called only if `has_rates`. The own rate does not
        include the learning rate.
        """
        raise NotImplementedError

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Update the state of elements that had no gradient for `steps` steps; called only if `allows_lazy_rows`."""

    # ----- Steps -----

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the state's arrays."""
        has_velocity = self.takes_velocity and self.uses_momentum and self.hyperparameters.momentum
        return (*self.arrays, VELOCITY) if has_velocity else self.arrays

    def update(
        self, w: Array, g: Array, state: Mapping[str, Array], scratch: Sequence[Array], last: Steps | None = None
    ) -> None:
        """Take one step in place.

        Args: last: see `numbers`; its shape is (rows, 1).
        Shapes: w, g and every array of state and scratch: equal shapes, flat or (rows, width).
        """
        arrays, numbers = self._arrange(state), self.numbers(last)
        if not rules.step(self.kernel, (w, g, *arrays), numbers):
            self.rule(w, g, arrays, numbers, scratch)

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Update some rows by one step in place if the rule has a compiled loop; return whether the rows were updated.

        Args: last: see `numbers`.
        Shapes: w, g and every array of state: all rows, (rows, width); rows, last: (rows,).
        """
        return rules.step(self.kernel, (w, g, *self._arrange(state)), self.numbers(last), rows)

    def _arrange(self, state: Mapping[str, Array]) -> tuple[Array | None, ...]:
        """Return the state in the rule's order."""
        velocity = (state.get(VELOCITY),) if self.takes_velocity else ()
        return (*map(state.__getitem__, self.arrays), *velocity)

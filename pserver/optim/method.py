"""What every learning method has: its update rule, the state beside it, and how parameters take a step by it.

**One signature.** An update rule is a function `rule(w, g, state, numbers, scratch)`:

    w        the values, changed in place
    g        the gradient: the sum over the samples of the batch, never a mean; not changed
    state    the arrays of `Method.arrays` in that order, then the velocity (None without momentum) if the method
             `takes_velocity`; changed in place
    numbers  what `Method.numbers` returns: float32, or columns with one number for each row
    scratch  at least two arrays that the rule may overwrite

All arrays have one shape. A rule that `kernels/rules.c` has, too, takes the same things in the same order there:
`name(w, g, *state, *numbers, rows, width)`. Both round every operation alike, so that they give the same bits.

**Rounding** follows the legacy: rates and decay constants are float32; powers are formed in double and rounded once.
Source: FirstOrderOptimizer.cpp and TrainingAlgorithmOp.cu of v0.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernels import rules
from pserver.optim.settings import Array, Optimization, Rows, Steps

VELOCITY = "velocity"

State = Sequence[Any]  # arrays; the last one may be None
Numbers = Sequence[Any]
Rule = Callable[[Array, Array, State, Numbers, Sequence[Array]], None]


@dataclass(frozen=True)
class Hyperparameters:
    """The settings of parameters that a method uses.

    `learning_rate` multiplies the scheduled rate. `decay` is the L2 rate that is part of the step; it is 0 where L2 is
    applied apart. `is_sparse` says that rows take their steps only in batches that touch them.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    decay: float = 0.0
    is_sparse: bool = False


class Method:
    """One learning method for parameters with the same hyperparameters: a rule, its state and its constants.

    Attributes of the class, of the rule (sparse_momentum sets them by instance):
        rule: the update rule.  kernel: its name in `kernels/rules.c`; "" where it is not compiled.
        arrays: the names of the state's arrays, in the rule's order.
        takes_velocity: whether the velocity comes after them.
    Attributes of the class, of the settings:
        uses_schedule, uses_momentum, uses_decay: whether the method uses these settings.
        separates_decay: whether L2 is never part of the step.
        allows_sparse: whether rows may be left out of a step.
        allows_lazy_rows: whether a step without gradient, momentum and L2 leaves the values as they are.
        has_rates: whether every element has a rate of its own.
        saved_scalars: the float32 attributes that a checkpoint needs beside the arrays.
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

    # ----- What a method defines beside its rule -----

    def numbers(self, last: Steps | None = None) -> Numbers:
        """Return the numbers of the rule in this step.

        Args: last: for rows, the step that each took last; 0: none yet.  None: all took part in every step.
        """
        raise NotImplementedError

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step.

        Args: rate: the scheduled rate.  number: of the batch since the start of the run, 1 for the first.
        """
        self.rate = np.float32(rate * self.hyperparameters.learning_rate)
        self.number = number

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Do what is due for all elements after a step; most methods have nothing to do."""

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step, without the common one; if `has_rates`."""
        raise NotImplementedError

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Bring the state of elements without gradient forward by a number of steps; if `allows_lazy_rows`."""

    # ----- Steps -----

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that go with the values."""
        has_velocity = self.takes_velocity and self.uses_momentum and self.hyperparameters.momentum
        return (*self.arrays, VELOCITY) if has_velocity else self.arrays

    def update(
        self, w: Array, g: Array, state: Mapping[str, Array], scratch: Sequence[Array], last: Steps | None = None
    ) -> None:
        """Take one step in place.

        Args: last: see `numbers`; a column.
        Shapes: w, g and every array of state and scratch: the same, flat or (rows, width).
        """
        arrays, numbers = self._arrange(state), self.numbers(last)
        if not rules.step(self.kernel, (w, g, *arrays), numbers):
            self.rule(w, g, arrays, numbers, scratch)

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are, if there is a compiled loop for it; return whether there is.

        Args: last: see `numbers`.
        Shapes: w, g and every array of state: the whole (all rows, width); rows, last: (rows,).
        """
        return rules.step(self.kernel, (w, g, *self._arrange(state)), self.numbers(last), rows)

    def _arrange(self, state: Mapping[str, Array]) -> tuple[Array | None, ...]:
        """Return the state in the rule's order."""
        velocity = (state.get(VELOCITY),) if self.takes_velocity else ()
        return (*map(state.__getitem__, self.arrays), *velocity)

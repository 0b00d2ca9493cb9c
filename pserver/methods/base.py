"""What every learning method has: the state it keeps, the settings it uses, and how a stretch takes a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pserver.rules import Array, Optimization, Rows

Steps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traits:
    """The settings of parameters that a method uses.

    `decay` is the L2 rate that is part of the step, 0 where it is applied apart. `is_sparse` says that rows take their
    steps only in batches that touch them.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    decay: float = 0.0
    is_sparse: bool = False


class Method:
    """One method for parameters with the same traits.

    Class attributes: `uses_schedule`, `uses_momentum`, `uses_decay`: whether these settings matter.  `takes_rows`:
    whether rows may be left out of a step.  `separates_decay`: whether L2 is never part of the step.  `rests`: whether
    a step without gradient, momentum and L2 leaves the values as they are.  `has_rates`: whether every element has a
    rate of its own.  `averages`: the names of the arrays beside
    the velocity.  `carried`: the float32 attributes that are asked for between two steps.
    """

    uses_schedule: ClassVar[bool] = True
    uses_momentum: ClassVar[bool] = True
    uses_decay: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True
    separates_decay: ClassVar[bool] = False
    rests: ClassVar[bool] = False
    has_rates: ClassVar[bool] = False
    averages: ClassVar[tuple[str, ...]] = ()
    carried: ClassVar[tuple[str, ...]] = ("rate",)

    def __init__(self, optimization: Optimization, traits: Traits) -> None:
        self.optimization = optimization
        self.traits = traits
        self.mu, self.decay = np.float32(traits.momentum), np.float32(traits.decay)
        self.rate = np.float32(0)
        self.number = 0

    def state_names(self) -> tuple[str, ...]:
        """Return the names of the arrays that go with the values."""
        velocity = ("velocity",) if self.uses_momentum and self.traits.momentum else ()
        return (*self.averages, *velocity)

    def start_step(self, rate: float, number: int) -> None:
        """Form the constants of a step.

        Args: rate: the scheduled rate.  number: of the batch since the start of the run, 1 for the first.
        """
        self.rate = np.float32(rate * self.traits.learning_rate)
        self.number = number

    def update(
        self,
        w: Array,
        g: Array,
        state: Mapping[str, Array],
        scratch: Sequence[Array],
        last: Steps | None = None,
    ) -> None:
        """Take one step in place.

        Args: last: for rows, the step that each took last, a column; 0: none yet.  None: all took part in every step.
        Shapes: w, g and every array of state and scratch: the same, flat or (rows, width).
        """
        raise NotImplementedError

    def update_rows(self, w: Array, g: Array, state: Mapping[str, Array], rows: Rows, last: Steps) -> bool:
        """Take one step of some rows where they are, if there is a compiled loop for it; return whether there is.

        Args: last: for each of `rows`, the step that it took last; 0: none yet.
        Shapes: w, g and every array of state: the whole (all rows, width); rows, last: (rows,).
        """
        return False

    def finish_step(self, w: Array, state: Mapping[str, Array]) -> None:
        """Do what is due for all elements after a step, seldom if ever."""

    def rates(self, state: Mapping[str, Array], out: Array) -> None:
        """Write the rates of the elements in their last step, without the common one; if `has_rates`."""
        raise NotImplementedError

    def pass_over(self, state: Mapping[str, Array], steps: Steps | int) -> None:
        """Bring the state of elements without gradient forward by so many steps; if `rests`."""

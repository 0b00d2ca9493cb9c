"""The position of training: the pass, its completed batches, and the saves inside the pass.

A position is between two batches, directly after a step. The tests and saves that are due after this step come after
the position. A run that resumes at the position therefore makes these tests and saves, like a run that was never
interrupted.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paddle_base.runtime.saves import pass_name

STAGES = BEFORE, INSIDE, AFTER = "before", "inside", "after"


@dataclass
class Position:
    """Training is BEFORE, INSIDE or AFTER pass `number`, of which `batches` batches are complete.

    `saves` and `checkpoints` are the numbers of saves and checkpoints inside the pass. `is_due` is whether the log
    lines, tests and saves after the last batch have not been made yet. In stage AFTER, the test and the save of the
    pass have not been made yet.
    """

    number: int
    stage: str = BEFORE
    batches: int = 0
    saves: int = 0
    checkpoints: int = 0
    is_due: bool = False

    def begin_next_pass(self) -> None:
        """Move to the beginning of the next pass."""
        self.number, self.stage = self.number + 1, BEFORE
        self.batches = self.saves = self.checkpoints = 0
        self.is_due = False

    def __str__(self) -> str:
        """Return the name of the batch after this position, for messages. Messages count batches from 1."""
        return f"batch {self.batches + 1} of pass {self.number}"

    def name_inside(self) -> str:
        """Return the name of a checkpoint that is made inside the pass."""
        return pass_name(self.number, self.checkpoints)

    def become(self, other: Position) -> None:
        """Move to another position."""
        vars(self).update(vars(other))

    def record(self) -> dict[str, Any]:
        """Return the position in the form that a checkpoint stores and `read_position` reads."""
        return asdict(self)


def read_position(record: Mapping[str, Any]) -> Position:
    """Return the position in a checkpoint.

    Raises: TypeError, ValueError: the record is invalid.
    """
    position = Position(**record)
    counts = (position.number, position.batches, position.saves, position.checkpoints)
    if min(map(operator.index, counts)) < 0 or position.stage not in STAGES or not isinstance(position.is_due, bool):
        raise ValueError(f"not a position: {record}")
    return position

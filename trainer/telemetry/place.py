"""The place of a trainer in its job, which the variables of a launcher or a pod name."""

from __future__ import annotations

import os

from paddle_base.runtime import glog
from paddle_base.runtime.health.places import take_place

# the variables by which a launcher or a pod names this trainer; a trainer's children have them, too
PLACE = ("PADDLE_OUTPUT", "PADDLE_ATTEMPT", "PADDLE_ABSENT", "PADDLE_CHOSEN_SAVE", "POD_UID")


def leave_place() -> None:
    """Leave the place of a trainer to the process that has it, if that process has started this one."""
    if holder := take_place(os.environ, PLACE):
        glog.warning(
            f"the trainer with process {holder} has started this one, which is a job of its own: it does not take the "
            f"place that {', '.join(PLACE)} give the first one"
        )

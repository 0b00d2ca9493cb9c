"""What ends a collective, and what the run loop of `elastic.worker` does about it.

PaddleError
 +- HorovodInternalError       75  a collective failed: restore the last commit, join the next generation, go on
 +- CollectiveMismatchError    70  the ranks do not call the same collective: the program is wrong
 +- RemovedFromJobError        75  the driver has no rank for this worker any more: it leaves
HostsUpdatedInterrupt              the hosts have changed: join the next generation with the present state
"""

from __future__ import annotations

from runtime.errors import PaddleError


class HorovodInternalError(PaddleError):
    """A collective failed because a rank is lost or has left; the group it belonged to is of no use any more."""

    exit_code = 75


class CollectiveMismatchError(PaddleError):
    """The ranks disagree about the kind, type, shape or reduction of a collective of one name."""

    exit_code = 70


class RemovedFromJobError(PaddleError):
    """The driver has answered the question for a rank with -1: this worker is not in the job any more."""

    exit_code = 75


class HostsUpdatedInterrupt(Exception):
    """The hosts of the job have changed, and every worker has seen it at the same commit.

    Attributes: skip_sync: whether no rank needs the state of another. Always False here: a spare host may take the
        place of the one that left, and its worker needs the state (defect G3 of the original).
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync

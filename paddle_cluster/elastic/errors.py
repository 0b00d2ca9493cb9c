"""The exceptions that end a collective, their exit codes, and how `paddle_cluster.elastic.state` reacts.

- `HorovodInternalError` (75): a collective failed. The loop restores the last commit, joins the next generation and
  continues.
- `CollectiveMismatchError` (70): the ranks do not call the same collective. The loop does not catch this error.
- `RemovedFromJobError` (75): the driver has no rank for this worker any more. The worker leaves.
- `LeftJobError` (143): this worker has received SIGTERM, and has left at a commit.
- `HostsUpdatedInterrupt`: the hosts have changed. The loop joins the next generation with the present state.
"""

from __future__ import annotations

from paddle_base.runtime.errors import PaddleError, StoppedError


class HorovodInternalError(PaddleError, RuntimeError):  # a RuntimeError as in Horovod
    """A collective failed because a rank is lost or has left; the group of ranks cannot be used any more."""

    exit_code = 75


class CollectiveMismatchError(PaddleError, RuntimeError):
    """The ranks disagree about the kind, type, shape or reduction of a collective with the same name."""

    exit_code = 70


class ScalarError(ValueError, RuntimeError):
    """A collective that distributes rows got an array without a dimension: a RuntimeError in Horovod, found later."""


class RemovedFromJobError(PaddleError):
    """The driver has answered the request for a rank with -1, because this worker is not in the job any more."""

    exit_code = 75


class LeftJobError(RemovedFromJobError):
    """This worker has left the job at a commit, because it has received SIGTERM."""

    exit_code = StoppedError.exit_code


class HostsUpdatedInterrupt(RuntimeError):  # as in Horovod
    """The hosts of the job have changed, and every worker has seen the change at the same commit.

    Attributes: skip_sync: whether the ranks may continue without `sync`. The value is always False here, because a new
        host may replace a host that left, and the worker of the new host needs the state. Horovod ignores this case.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync

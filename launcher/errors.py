"""Errors of the launcher alone; all others are those of runtime/errors.py.

PaddleError
 +- VolumeError
 |   +- LostMountError    74  the mount of this pod is dead, and only another pod gets a new one
 +- DataError
 |   +- IndivisibleError  65  the shard of an absent trainer cannot be divided among the others
 +- GivenUpError          78  this Job has had more than RESTARTS attempts without progress
ApiError                      an obstacle of a wait; it becomes one of those at the deadline
"""

from __future__ import annotations

from runtime import errors

# exit statuses that come back the same way every time: UsageError, DataError, MissingInputError, ApiForbiddenError,
# ConfigError; k8s/job.yaml names them in its podFailurePolicy
NEVER_RETRY = (64, 65, 66, 77, 78)


class LostMountError(errors.VolumeError):
    """This pod cannot reach the volume any more, even when the volume is sound."""


class IndivisibleError(errors.DataError):
    """A shard has no list of its files, so that no other trainer can be given some of them."""


class GivenUpError(errors.PaddleError):
    """This Job has had too many attempts without progress; ends the Job, which would replace pods for ever."""

    exit_code = 78


class ApiError(Exception):
    """A request, or what is done about its answer, failed.

    `fatal` says whether it ends the wait at once; `final` is what it becomes then, or at the deadline.
    """

    def __init__(
        self,
        message: str,
        *,
        final: type[errors.PaddleError] = errors.PeerUnreachableError,
        fatal: bool = False,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.final = final
        self.fatal = fatal
        self.retry_after_s = retry_after_s

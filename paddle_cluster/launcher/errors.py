"""Errors that only the launcher raises; all other errors are in paddle_base/runtime/errors.py.

PaddleError
 +- VolumeError
 |   +- LostMountError    74  the volume's mount in this pod is dead, and only another pod gets a new mount
 +- DataError
 |   +- IndivisibleError  65  the shard of an absent trainer cannot be divided among other trainers
 +- GivenUpError          78  this Job has had more than RESTARTS attempts without progress
NotReadyError                 an obstacle of a wait; at the deadline it becomes a PaddleError
 +- ApiError                  a failed request, after which the next request waits longer
"""

from __future__ import annotations

from paddle_base.runtime import errors

# Exit statuses of errors that recur with every attempt. The classes are, in this order, UsageError, DataError,
# MissingInputError, ApiForbiddenError and ConfigError. The podFailurePolicy of k8s/job.yaml lists the same statuses.
NEVER_RETRY = (64, 65, 66, 77, 78)


class LostMountError(errors.VolumeError):
    """This pod can no longer reach the volume, even if the volume itself works."""


class IndivisibleError(errors.DataError):
    """A shard has no list of its files, so its files cannot be divided among other trainers."""


class GivenUpError(errors.PaddleError):
    """This Job has had too many attempts without progress.

    The error ends the Job. Without this error, the Job would replace failed pods forever.
    """

    exit_code = 78


class NotReadyError(Exception):
    """What a launcher waits for is not there yet; the text says what is missing.

    `final`: the class of the error that ends the wait at its deadline.
    """

    final: type[errors.PaddleError] = errors.PeerUnreachableError


class ApiError(NotReadyError):
    """A request to the API server failed, its answer was not usable, or the volume cannot be used now.

    `fatal`: the request cannot succeed later, so the launcher does not repeat it.
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

"""Notice the end of a job. A trainer reads the end in the registry, even after the master has ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from paddle_base.registry.interface import Registry
from paddle_base.registry.records import JobEnd, find_job_end
from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError, PeerUnreachableError, VolumeError

PERIOD_S = 2.0  # seconds between two reads of the registry


class JobOverError(Exception):
    """The registry says that the job is over. The trainer ends with the result of the job."""

    def __init__(self, end: JobEnd) -> None:
        super().__init__(end.reason)
        self.end = end


class EndWatch:
    """Read the registry repeatedly until a master has accepted this trainer.

    Args: is_joined: a function that returns whether a master has accepted this trainer. look: a function that is called
        before every read; an error that it raises ends the wait. clock: returns monotonic seconds.
    """

    def __init__(
        self,
        registry: Registry,
        is_joined: Callable[[], bool],
        look: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._is_joined, self._look, self._clock = registry, is_joined, look, clock
        self._due = 0.0

    def __call__(self) -> None:
        """Check whether the job is over.

        Raises: JobOverError: the job is over.  DamagedError: the record in the registry is invalid.
        """
        self._look()
        now = self._clock()
        if self._is_joined() or now < self._due:
            return
        self._due = now + PERIOD_S
        with contextlib.suppress(PeerUnreachableError, VolumeError):
            end = find_job_end(self._registry)
            if end is not None:
                raise JobOverError(end)


def tell_end(end: JobEnd) -> None:
    """Log that the job is over.

    Raises: DataError: the job has failed, or tasks were discarded.
    """
    if end.reason:
        raise DataError(f"the master has ended the job: {end.reason}; for details see the log of the master")
    if end.discarded:
        raise DataError(end.discarded)
    glog.info("the job is over: all its passes are done")

"""A common deadline of several steps. Names are those of `horovod.runner.common.util.timeout`."""

from __future__ import annotations

import time

from paddle_cluster.elastic.membership.host_watch import TimeoutException

__all__ = ["Timeout", "TimeoutException"]


class Timeout:
    """A deadline.

    Args: timeout: seconds from now.  message: text of the error, in which `{activity}` stands for the step.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout, self._message = timeout, message
        self._until = time.monotonic() + timeout

    def remaining(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def timed_out(self) -> bool:
        """Return whether the deadline is over."""
        return time.monotonic() > self._until

    def check_time_out_for(self, activity: str) -> None:
        """Check that the deadline is not over. Raises: TimeoutException: the deadline is over."""
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip().removesuffix(".")
            raise TimeoutException(f"{text}. Timeout after {self._timeout} seconds.")

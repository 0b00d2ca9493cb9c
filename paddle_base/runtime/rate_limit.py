"""Limits the rate of repeated log lines, as LOG_EVERY_T of glog. The module reads no clock. No I/O."""

from __future__ import annotations

import math

WAIT_LINE_S = 10.0  # seconds between two log lines about a wait
PROBLEM_LINE_S = 30.0  # seconds between two log lines about the same problem


class RateLimit:
    """Let one log line of each kind pass in each period.

        lines = RateLimit(PROBLEM_LINE_S)
        ...
        if lines.is_due(time.monotonic()):
            glog.warning(f"the lease is not renewed yet: {exc}")

    Args: period: seconds between two lines of the same kind; 0: each line is due.  start: time before which no line is
        due.  most: maximum lines of all kinds together in one period.
    """

    def __init__(self, period: float, start: float = -math.inf, most: float = math.inf) -> None:
        self._period, self._start, self._most = period, start, most
        self._passed: dict[str, float] = {}  # by kind: the time of its line in the present period

    def is_due(self, now: float, kind: str = "") -> bool:
        """Return whether a line is due; if so, the caller writes it, and the next period of this kind begins.

        Args: now: seconds of the same clock as `start`.
        """
        self._passed = {one: when for one, when in self._passed.items() if now - when < self._period}
        is_due = now >= self._start and kind not in self._passed and len(self._passed) < self._most
        if is_due:
            self._passed[kind] = now
        return is_due

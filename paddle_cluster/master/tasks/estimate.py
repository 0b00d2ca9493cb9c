"""Estimates the time limit of a task from the durations of previous tasks."""

from __future__ import annotations

GAIN, DEVIATION_GAIN = 1 / 8, 1 / 4  # RFC 6298, section 2: alpha and beta
MEANS, DEVIATIONS = 2.0, 4.0  # factors of the mean and of the mean deviation in the limit; RFC 6298 has 1 and 4


class DurationEstimate:
    """A moving mean of durations, and of their deviations.

    Args: least, most: bounds of the limit in seconds; `most` is the limit without data.
    """

    def __init__(self, least: float, most: float) -> None:
        self.mean = 0.0
        self.deviation = 0.0
        self.known = 0
        self._least, self._most = min(least, most), most

    def add(self, seconds: float) -> None:
        """Add a duration; it may be wrong by any amount if the dispatch began under a leader with another clock."""
        seconds = min(max(0.0, seconds), self._most)
        if self.known:
            self.deviation += DEVIATION_GAIN * (abs(seconds - self.mean) - self.deviation)
            self.mean += GAIN * (seconds - self.mean)
        else:
            self.mean, self.deviation = seconds, seconds / 2
        self.known += 1

    def limit(self, failures: int) -> float:
        """Return the time limit of a task in seconds. Each failure doubles the limit, which may have been too short."""
        if not self.known:
            return self._most
        plain = max(self._least, MEANS * self.mean + DEVIATIONS * self.deviation)
        return min(self._most, plain * 2.0 ** min(failures, 32))

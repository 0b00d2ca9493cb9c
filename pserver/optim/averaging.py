"""Model averaging: counters that determine how many recent steps an average of the values covers.

The shard stores three sums of values (`pserver.store.updates.average_sums`). The sum `recent` covers the latest steps,
`older` covers the earlier steps of the current window, and `previous` covers the previous window. The counters decide
when `recent` is added to `older`, and when a new window begins.

Source: AverageOptimizer.cpp of v0.10.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pserver.optim.settings import Optimization

FOLD_PERIOD = 16384  # steps after which the recent sum is added to the older sum; source: v0.10
LEAST_WINDOW = 10000  # minimum window in steps, unless max_average_window is smaller; source: v0.10
NO_LIMIT = (1 << 63) - 1  # maximum window in steps if the config sets no limit

SUMS = ("sum_recent", "sum_older", "sum_previous")


@dataclass
class Averaging:
    """The window of the average, and the counters of steps since the start of the training."""

    window: float  # fraction of all steps that the average covers
    longest: int
    shortest: int
    follows_passes: bool  # whether the maximum window is set to the length of each pass
    updates: int = 0
    accumulated: int = 0
    accumulated_before: int = 0
    _updates_before_pass: int = field(default=0, repr=False)

    @classmethod
    def of(cls, optimization: Optimization) -> Averaging | None:
        """Return the counters at the start of a run, or None if the config enables no averaging."""
        if optimization.average_window <= 0:
            return None
        limit = optimization.max_average_window
        longest = NO_LIMIT if limit is None else limit
        return cls(optimization.average_window, longest, min(LEAST_WINDOW, longest), limit is None)

    @property
    def count(self) -> int:
        """The number of steps whose values are in the sums."""
        return self.accumulated + self.accumulated_before

    @property
    def is_fold_due(self) -> bool:
        """Whether the recent sum must be added to the older sum now, so that sums stay small and precise."""
        return self.updates % FOLD_PERIOD == 0

    @property
    def is_window_full(self) -> bool:
        """Whether a new window begins after this step."""
        return self.accumulated >= self.shortest and self.accumulated >= min(
            self.longest, int(self.updates * self.window)
        )

    def start_step(self) -> None:
        """Count a step."""
        self.updates += 1
        self.accumulated += 1

    def start_window(self) -> None:
        """Begin a new window."""
        self.accumulated_before, self.accumulated = self.accumulated, 0

    def finish_pass(self) -> None:
        """Use the number of steps of the pass as the maximum window, unless the config sets a maximum window."""
        if self.follows_passes and self.updates > self._updates_before_pass:
            self.longest = self.updates - self._updates_before_pass
        self._updates_before_pass = self.updates
        self.shortest = min(self.shortest, self.updates)

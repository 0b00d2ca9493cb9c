"""Where the time of a trainer has gone, phase by phase.

The main thread changes a TimeBreakdown, and any thread may ask it for its totals: what changes together is one tuple,
which is replaced as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

# what a trainer does: waits for the data provider; computes forward, backward and evaluators; waits for servers and
# other trainers; tests; saves; anything else
DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER = "data", "compute", "exchange", "test", "save", "other"


class Spent(NamedTuple):
    """What one trainer has done with its time up to one moment.

    Attributes: samples: trained so far, of all passes.  seconds: since training began.  phases: {phase: its seconds}.
    """

    samples: int
    seconds: float
    phases: dict[str, float]

    def describe(self) -> dict[str, float]:
        """Return {samples, seconds, and <phase>_seconds of every phase}, as records and progress.json have them."""
        phases = {f"{name}_seconds": round(seconds, 6) for name, seconds in self.phases.items()}
        return {"samples": self.samples, "seconds": round(self.seconds, 6), **phases}


class TimeBreakdown:
    """One trainer's place and time since it began to train; a switch costs about half a microsecond.

    Attributes: pass_number, batch: the place, batches of the pass that are done.  samples: trained so far, of all
        passes.  batches: the same in batches.  passes: that were finished.

    Args: clock: seconds, monotonic.
    Thread safety: one thread changes it; `phase` and `spent` may be asked for by others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pass_number = self.batch = self.batches = self.samples = self.passes = 0
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Count the time from now on."""
        self._began = self._clock()
        # the phase, when it began, and the seconds of each phase that are over
        self._state = (OTHER, self._began, dict.fromkeys((DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER), 0.0))

    @property
    def phase(self) -> str:
        """What the trainer does now."""
        return self._state[0]

    def switch(self, phase: str) -> str:
        """Begin to do something else, and return what was done until now."""
        now = self._clock()
        before, turned, seconds = self._state
        self._state = (phase, now, {**seconds, before: seconds[before] + now - turned})
        return before

    def count(self, batch: int, samples: int) -> None:
        """Count a batch of `samples` samples; `batch` batches of the pass are done now."""
        self.batch = batch
        self.batches += 1
        self.samples += samples

    def spent(self) -> Spent:
        """Return where the time has gone until now."""
        phase, turned, seconds = self._state
        now = self._clock()
        return Spent(self.samples, now - self._began, {**seconds, phase: seconds[phase] + now - turned})

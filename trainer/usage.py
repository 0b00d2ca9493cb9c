"""Where a run is and where its time has gone: plain attributes, since other threads read them at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable

# what a trainer does: waits for the data provider; computes forward, backward and evaluators; waits for servers and
# other trainers; tests; saves; anything else
DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER = "data", "compute", "exchange", "test", "save", "other"


class Usage:
    """One trainer's place and time since it began to train; a switch costs a fraction of a microsecond.

    Attributes: pass_number, batch: the place, batches of the pass that are done.  samples: trained so far, of all
        passes.  batches: the same in batches.  passes: that were finished.  cost: of the last batch, per sample.
        phase: what it does now.
        turned: when it began to do that, seconds of the clock.

    Args: clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pass_number = self.batch = self.batches = self.samples = self.passes = 0
        self.cost = 0.0
        self.phase = OTHER
        self._clock = clock
        self._spent = dict.fromkeys((DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER), 0.0)
        self.began = self.turned = clock()

    def switch(self, phase: str) -> str:
        """Begin to do something else, and return what was done until now."""
        now, before = self._clock(), self.phase
        self._spent[before] += now - self.turned
        self.turned, self.phase = now, phase
        return before

    def count(self, batch: int, samples: int, cost: float) -> None:
        """Count a batch that is done: now `batch` of the pass are, and it had `samples` of `cost` each."""
        self.batch = batch
        self.batches += 1
        self.samples += samples
        self.cost = cost

    def totals(self) -> dict[str, float]:
        """Return {samples, seconds, and <phase>_seconds of every phase} since the trainer began."""
        now, phase, turned = self._clock(), self.phase, self.turned
        spent = {name: seconds + (now - turned if name == phase else 0.0) for name, seconds in self._spent.items()}
        return {
            "samples": self.samples,
            "seconds": round(now - self.began, 6),
            **{f"{name}_seconds": round(seconds, 6) for name, seconds in spent.items()},
        }

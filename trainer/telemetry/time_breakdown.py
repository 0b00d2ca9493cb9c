"""Divide the time of a trainer into phases.

The main thread changes a TimeBreakdown, and any thread may read its totals. Values that change together are stored in
one tuple, which is replaced as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

# The phases of a trainer, in this order: it waits for the data provider; it computes the forward pass, the backward
# pass and the evaluators; it waits for servers and other trainers; it tests; it saves; it does any other work.
DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER = "data", "compute", "exchange", "test", "save", "other"


class Spent(NamedTuple):
    """The totals of one trainer at one moment.

    Attributes: samples: number of samples trained so far, in all passes. seconds: seconds since training began. phases:
        the seconds of each phase.
    """

    samples: int
    seconds: float
    phases: dict[str, float]

    def describe(self) -> dict[str, float]:
        """Return the totals in the form of records and progress.json: samples, seconds and each <phase>_seconds."""
        phases = {f"{name}_seconds": round(seconds, 6) for name, seconds in self.phases.items()}
        return {"samples": self.samples, "seconds": round(self.seconds, 6), **phases}


class TimeBreakdown:
    """The position and the times of a trainer since it began to train.

    A switch of the phase takes about half a microsecond.

    Attributes: pass_number: number of the current pass. batch: number of its completed batches. samples, batches:
        numbers of trained samples and batches in all passes. passes: number of finished passes. counted: when the
        newest batch was counted, or training began.

    Args: clock: returns monotonic seconds.
    Thread safety: only one thread may change the object. Other threads may call `phase`, `idle_seconds` and `spent`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pass_number = self.batch = self.batches = self.samples = self.passes = 0
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin to measure the time."""
        self._began = self.counted = self._clock()
        # the phase, its start, and the seconds of each completed phase
        self._state = (OTHER, self._began, dict.fromkeys((DATA, COMPUTE, EXCHANGE, TEST, SAVE, OTHER), 0.0))

    @property
    def phase(self) -> str:
        """The present phase."""
        return self._state[0]

    @property
    def idle_seconds(self) -> float:
        """Seconds since the newest batch was counted, or since training began."""
        return self._clock() - self.counted

    def switch(self, phase: str) -> str:
        """Begin a phase, and return the previous phase."""
        now = self._clock()
        before, turned, seconds = self._state
        self._state = (phase, now, {**seconds, before: seconds[before] + now - turned})
        return before

    def count(self, batch: int, samples: int) -> None:
        """Count a batch of `samples` samples. After it, `batch` batches of the pass are complete."""
        self.batch = batch
        self.batches += 1
        self.samples += samples
        self.counted = self._clock()

    def spent(self) -> Spent:
        """Return the totals until now."""
        phase, turned, seconds = self._state
        now = self._clock()
        return Spent(self.samples, now - self._began, {**seconds, phase: seconds[phase] + now - turned})

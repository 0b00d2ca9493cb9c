"""Decide which records of batches are written, and measure passes."""

from __future__ import annotations

import math
from collections.abc import Callable

ALL_BATCHES = 10_000  # this many batch records are all written; then at most one in BATCH_PERIOD_S is written
BATCH_PERIOD_S = 1.0  # minimum seconds between two batch records after the first ALL_BATCHES


class BatchRecordLimit:
    """Decide which batch records are written. The limit keeps records.jsonl of a long run small."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._count, self._last = clock, 0, -math.inf

    def takes(self) -> bool:
        """Count a record and return whether it is written."""
        self._count += 1
        now = self._clock()
        if self._count > ALL_BATCHES and now - self._last < BATCH_PERIOD_S:
            return False
        self._last = now
        return True


class PassWatch:
    """A stopwatch for passes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()

    def start(self) -> None:
        """Restart from zero."""
        self._began = self._clock()

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return self._clock() - self._began

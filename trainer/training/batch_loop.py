"""What all loops of training do with a batch: train on it, count it, write its log lines, and test between batches.

A loop over passes, over the tasks of a master, or over shares of batches decides which batch comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from trainer.arrays.arguments import Argument
from trainer.evaluators import Accumulator
from trainer.session import BatchResult, read_batches
from trainer.telemetry.time_breakdown import DATA, OTHER, TEST
from trainer.telemetry.training_log import TrainingLog
from trainer.training.parts import Parts
from trainer.training.position import Position
from trainer.training.saves import Saves
from trainer.training.stopping import Stopper

T = TypeVar("T")


class BatchLoop:
    """What the loops have in common. A subclass decides which batch comes next, and what comes between two batches.

    Raises (run): DataError: the provider raised an error, or a number is not finite. VolumeError: a save failed.
        StoppedError: a signal arrived.
    """

    def __init__(self, parts: Parts, stopper: Stopper, position: Position) -> None:
        self._parts, self._session, self._stopper, self._flags = parts, parts.session, stopper, parts.flags
        self._position = position
        self._breakdown = self._session.breakdown = parts.reporter.breakdown
        self._log = TrainingLog(
            parts.flags, self._session.evaluators, self._session.table, parts.reporter, averages=parts.averages
        )
        self._saves = Saves(parts, stopper)

    def place(self) -> dict[str, int]:
        """Return the pass and the batch at which training begins or resumes."""
        return {"pass": self._position.number, "batch": self._position.batches}

    def run(self) -> None:
        """Train to the end of the job."""
        raise NotImplementedError

    # ----- for subclasses -----

    def _wait_for(self, read: Callable[[], T]) -> T:
        """Return what `read` returns. The time of the call counts as waiting for data."""
        self._breakdown.switch(DATA)
        found = read()
        self._breakdown.switch(OTHER)
        return found

    def _compute(self, slots: Mapping[str, Argument], samples: int) -> BatchResult:
        """Compute the gradients of the next batch. The caller takes the step, and calls `_count` and `_write` then.

        Raises: DataError: the cost or a gradient is not finite.
        """
        batches, session = self._position.batches, self._session
        self._log.start_batch(batches)
        if self._log.measures_average(batches):  # of the values before the step
            with self._stopper.hold_at_ends(session.updater.averaged()), session.network.states.restored():
                self._log.averaged.add(*session.evaluate(slots, samples))
        return session.compute(slots, samples, self._position)

    def _count(self, result: BatchResult | None) -> None:
        """Count a batch whose step is complete. The result is None if this trainer had no sample of the batch."""
        self._position.count_batch()
        if result is not None:
            self._log.count(self._position.batches, *result)

    def _write(self) -> None:
        """Write the log lines that are due after a batch."""
        self._log.write_batch(self._position.number, self._position.batches, self._session.updater.rates)

    def _test(
        self, values: AbstractContextManager[None], each_batch: Callable[[int, Accumulator], None] | None = None
    ) -> None:
        """Test the model, and log the result. Do nothing if the config has no test data.

        Args: values: a context in which the parameters have the values to test. each_batch: see `Session.test`.
        """
        parts = self._parts
        if parts.test is None:
            return
        before = self._breakdown.switch(TEST)
        batches = read_batches(parts.test, parts.batch_size)
        result = self._session.test(batches, values=values, each_batch=each_batch)
        self._breakdown.switch(before)
        self._log.write_test(result)

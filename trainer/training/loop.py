"""What all training loops have in common, and the loop over passes and batches.

Tests, saves and log lines come after the same batches as in v0.10.

Source: spec/trainer.md sections 2 and 3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError, PaddleError, StoppedError
from paddle_base.runtime.saves import pass_name
from trainer.arrays.arguments import Argument
from trainer.arrays.rng import Stream
from trainer.evaluators import Accumulator
from trainer.session import BatchResult, read_batches
from trainer.storage.going_on import describe_going_on
from trainer.telemetry.time_breakdown import DATA, OTHER, TEST
from trainer.telemetry.training_log import TrainingLog
from trainer.training.checkpoint_policy import CheckpointPolicy
from trainer.training.parts import Parts
from trainer.training.position import AFTER, BEFORE, INSIDE, Position
from trainer.training.saves import Saves
from trainer.training.stopping import Stopper

T = TypeVar("T")
TrainingBatch = tuple[Mapping[str, Argument], int]  # the slots of a batch, and its size in units
# maximum seconds that an optimiser step may take after a signal. Source: a small part of a pod's grace period, 30 s
STEP_LIMIT_S = 5
# maximum seconds that a batch may take after a signal; a checkpoint can be made only after a batch
CHECKPOINT_LIMIT_S = 15


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

    @property
    def parts(self) -> Parts:
        """The parts of the job."""
        return self._parts

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
                session.network.forward(slots)
                self._log.averaged.add(session.network.cost(), samples, session.measure())
        return session.compute(slots, samples, self._position)

    def _count(self, result: BatchResult | None) -> None:
        """Count a batch whose step is complete. The result is None if this trainer had no sample of the batch."""
        self._position.batches += 1
        self._position.is_due = True
        if result is not None:
            self._log.count(self._position.batches, *result)

    def _report_pass(self, *, may_be_empty: bool = False) -> None:
        """Write the line of a pass. Warn of a pass without a batch, if it may be empty.

        Raises: DataError: the pass had no batch.
        """
        number, batches = self._position.number, self._position.batches
        self._log.write_pass(number, batches)
        if batches:
            return
        text = f"the data provider delivers no sample in pass {number}"
        if not may_be_empty:
            raise DataError(f"{text}; check {self._parts.data_text}")
        glog.warning(f"{text}; the other trainers may still train it")

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


@dataclass(frozen=True)
class _Ahead:
    """A batch that was read before its turn, or None at the end of the pass, or the error of the provider.

    The random stream then has the state that it had before, so that a checkpoint has it. `use` gives it the state after
    the reading.
    """

    batch: TrainingBatch | None
    error: DataError | MissingInputError | None
    state: int

    @classmethod
    def read(cls, read: Callable[[], TrainingBatch | None], stream: Stream) -> _Ahead:
        before = stream.state
        batch = error = None
        try:
            batch = read()
        except (DataError, MissingInputError) as exc:  # the step comes first, as without reading ahead
            error = exc
        after, stream.state = stream.state, before
        return cls(batch, error, after)

    def use(self, stream: Stream) -> TrainingBatch | None:
        """Return the batch.

        Raises: DataError, MissingInputError: the error of the provider.
        """
        stream.state = self.state
        if self.error is not None:
            raise self.error
        return self.batch


class Training(BatchLoop):
    """The training job.

    A signal ends the job after the current batch. The steps since the last save are then saved in a checkpoint or, in a
    local run without checkpoints, in a pass directory. So are those of a local run after a fault of its test data. With
    servers, such a fault ends the job after the checkpoint of its pass.

    Raises (run): DataError: the provider raised an error, or a number is not finite. LostPeerError,
        PeerUnreachableError: the servers or other trainers are lost. VolumeError: a save failed. StoppedError: a signal
        arrived.
    """

    def __init__(self, parts: Parts, stopper: Stopper) -> None:
        self._source = parts.training_data()
        super().__init__(parts, stopper, Position(parts.flags.start_pass))
        self._end_pass = parts.flags.start_pass + parts.flags.num_passes  # number of the last pass, plus 1
        self._fault: PaddleError | None = None  # of the test data; it ends this trainer when the checkpoint is written
        self._has_begun = False  # whether the saves of an earlier run have moved away
        self._ahead: _Ahead | None = None
        self._checkpoints = CheckpointPolicy(parts, stopper, self._log)
        if not parts.flags.local:
            stopper.limit(CHECKPOINT_LIMIT_S)

    def resume(self, own: Mapping[str, Any] | None) -> None:
        """Resume from a checkpoint. The updater has already restored the parameters. The caller must call `run` next.

        Args: own: the state of this trainer in the checkpoint.
        Raises: ConfigError: the checkpoint has no state of this trainer.  DataError, MissingInputError: see `run`.
        """
        if own is None or not self._checkpoints.is_on:
            raise ConfigError(
                f"the checkpoint has no state of trainer {self._flags.trainer_id}: use as many trainers as the job "
                "that made the checkpoint, or leave out --resume_from"
            )
        self._position = self._checkpoints.resume(own)
        if self._position.number >= self._end_pass:
            glog.info(
                f"nothing is left to do: the last pass is {self._end_pass - 1} (--start_pass + --num_passes - 1), and "
                "this pass is done"
            )

    def run(self) -> None:
        """Train all passes."""
        # with servers, all trainers make a checkpoint together after a step, and a signal must wait for this checkpoint
        is_held = self._checkpoints.is_on and not self._flags.local
        with np.errstate(all="ignore"):  # numpy's warnings are unnecessary, because an infinite cost is an error
            try:
                with self._stopper.hold(is_held):
                    while self._position.number < self._end_pass:
                        self._run_pass()
            except StoppedError:
                self._save_stopped()
                self._tell_how_to_go_on()
                raise
            except PaddleError:
                self._end_with_fault()  # another trainer may have ended first, with the same fault
                raise
        self._session.updater.finish()
        self._end_with_fault()

    def _run_pass(self) -> None:
        position, reporter = self._position, self._parts.reporter
        is_resumed = position.stage != BEFORE
        glog.bind(position.number, position.batches)
        samples = self._log.since_start.samples if is_resumed else 0
        reporter.start_pass(position.number, position.batches, samples)
        if position.stage != AFTER:
            self._start_pass(is_resumed=is_resumed)
            held = self._stopper.hold(self._flags.local)
            while (batch := self._wait_for(self._read_batch)) is not None:
                with held:
                    self._run_batch(*batch)
                self._finish_batch()
            self._finish_batches()
        self._report_pass(may_be_empty=not self._flags.local)
        name = pass_name(position.number)
        is_saved = position.number % self._flags.saving_period == 0
        with self._saves.before_test(name, position) if is_saved else nullcontext():
            try:
                self._test_saving()
            except (DataError, MissingInputError) as error:
                if self._flags.local or not is_saved:
                    raise
                self._fault = error  # the other trainers wait for this one in the checkpoint
        with self._stopper:
            position.begin_next_pass()
            self._checkpoints.mark()
            if is_saved:
                self._make_checkpoint(name)
        if self._flags.trainer_id == 0:  # trainer 0 has written the checkpoint
            self._end_with_fault()
        reporter.show()

    def _end_with_fault(self) -> None:
        """Raise the fault of the test data that this trainer has held back, if there is one."""
        if self._fault is not None:
            raise self._fault from None

    def _start_pass(self, *, is_resumed: bool) -> None:
        """Begin a pass, or resume inside it."""
        self._session.start_pass(self._position.batches)
        self._checkpoints.leave_if_made()
        self._end_with_fault()  # all trainers begin the pass, so trainer 0 has written the checkpoint
        if is_resumed:
            if self._position.is_due:
                self._finish_batch()
            return
        with self._stopper:
            self._position.stage = INSIDE
            self._session.network.states.restart()
            self._log.since_start.reset()
            self._source.start_pass()
            self._checkpoints.mark()

    def _read_batch(self) -> TrainingBatch | None:
        ahead, self._ahead = self._ahead, None
        batch = self._source.next_batch(self._parts.batch_size) if ahead is None else ahead.use(self._session.stream)
        if batch is not None and not self._has_begun:
            self._parts.begin()
            self._has_begun = True
        return batch

    def _look_ahead(self) -> None:
        """Read the next batch before the step of this one, for an updater that fetches with the step what it needs.

        The provider is not waited for, so that no step waits. A batch that follows a test is not read, because a test
        may draw from the random stream that picks the samples.
        """
        updater, size = self._session.updater, self._parts.batch_size
        if not updater.looks_ahead or self._is_test_due(self._position.batches + 1) or not self._source.is_ready(size):
            return
        self._ahead = _Ahead.read(lambda: self._wait_for(lambda: self._source.next_batch(size)), self._session.stream)
        if self._ahead.batch is not None:
            updater.announce(self._ahead.batch[0])

    def _run_batch(self, slots: Mapping[str, Argument], samples: int) -> None:
        """Train on a batch. If a trainer has requested a checkpoint after this step, make the checkpoint."""
        checkpoints = self._checkpoints
        result = self._compute(slots, samples)
        self._look_ahead()
        with self._stopper:
            is_wanted = self._session.update(samples, checkpoint=checkpoints.is_wanted(self._position.batches + 1))
            # Trainer 0 writes a checkpoint before it takes part in the next step. When this step ends at another
            # trainer, the previous checkpoint has therefore been written, and the trainer may leave.
            checkpoints.leave_if_made()
            self._count(result)
            self._saves.unsaved_steps += 1
            checkpoints.unsaved_steps += 1
            checkpoints.mark()
            if is_wanted and checkpoints.is_on:
                self._make_checkpoint_inside()

    def _finish_batch(self) -> None:
        """Write the log lines, and make the tests and saves, that are due after a step."""
        position = self._position
        self._write()
        is_tested = self._is_test_due(position.batches)
        period = self._flags.test_period
        if period and position.batches % period == 0:
            self._test_saving()
        if self._is_save_due(position.batches):
            position.saves += 1
            with self._saves.before_test(pass_name(position.number, position.saves), position):
                self._test_saving()
        if not is_tested:
            position.is_due = False
            return
        with self._stopper:
            position.is_due = False
            self._checkpoints.mark()

    def _is_test_due(self, batches: int) -> bool:
        """Return whether a test follows the batch with which `batches` batches of the pass are complete."""
        period = self._flags.test_period
        return bool(period and batches % period == 0) or self._is_save_due(batches)

    def _is_save_due(self, batches: int) -> bool:
        """Return whether a save, with a test, follows this batch."""
        by_batches = self._flags.saving_period_by_batches
        # as in v0.10, the first save follows batch `by_batches` + 1 instead of batch `by_batches`
        return bool(by_batches) and self._flags.trainer_id == 0 and batches > by_batches * (self._position.saves + 1)

    def _finish_batches(self) -> None:
        """End the pass together with the other trainers."""
        with self._stopper.hold(self._flags.local):
            own = self._checkpoints.describe(self._position)
            self._session.finish_pass(own)
            self._checkpoints.leave_if_made()
            self._position.stage = AFTER

    def _test_saving(self) -> None:
        """Test the model. After a fault of the test data, a local run saves its steps, as after a signal."""
        # A signal must not interrupt the exchange of values and averages. Otherwise a decay could be half done, or the
        # averages could stay in the place of the values.
        self._checkpoints.begin_test()
        try:
            self._test(self._stopper.hold_at_ends(self._session.updater.averaged()))
        except (DataError, MissingInputError):
            if self._flags.local:
                with self._stopper:
                    self._save_stopped()
                self._tell_how_to_go_on()
            raise

    def _make_checkpoint(self, name: str) -> None:
        """Make a checkpoint. If trainer 0 has received a signal, trainer 0 ends after the checkpoint."""
        if not self._checkpoints.is_on:
            return
        self._checkpoints.make(self._position, name)
        if self._flags.trainer_id == 0:
            self._checkpoints.leave_if_made()

    def _make_checkpoint_inside(self) -> None:
        self._position.checkpoints += 1
        self._make_checkpoint(self._position.name_inside())

    def _save_stopped(self) -> None:
        """Save the steps since the last save. If an optimiser step was interrupted, save nothing.

        With checkpoints, the steps since the last checkpoint count, because a run resumes from a checkpoint only.
        """
        if not (self._checkpoints if self._checkpoints.is_on else self._saves).unsaved_steps:
            return
        if self._session.is_open or not self._stopper.is_clean:
            is_cut = self._session.is_open or not self._checkpoints.is_on
            awaited = "its step was done" if is_cut else "a checkpoint could be made"
            glog.warning(f"training stopped in {self._position} before {awaited}; nothing is saved")
            return
        self._log.end_dots()
        if not self._checkpoints.is_on:
            self._saves.save_stopped(self._position)
        elif self._flags.local:
            self._make_checkpoint_inside()

    def _tell_how_to_go_on(self) -> None:
        """Log the command that goes on from the newest save of this run. A launcher or a master goes on by itself."""
        flags = self._flags
        if flags.trainer_id == 0 and not os.environ.get("PADDLE_ATTEMPT"):
            newest = self._checkpoints.newest, self._saves.newest
            if told := describe_going_on(flags, self._parts.save_dir, *newest):
                glog.info(told)

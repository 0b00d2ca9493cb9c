"""Decide when a checkpoint is due, collect the state of a trainer for a checkpoint, and resume from this state."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.saves import FOLDER, clean
from pserver.wire.checkpoint_blobs import LEAVES
from trainer.arrays.encoding import decoding
from trainer.data import random_states
from trainer.data.source import BatchSource
from trainer.evaluators import Accumulator
from trainer.flags import Values
from trainer.storage.checkpoint import keep_newest, write_checkpoint
from trainer.storage.job_division import ABSENT, find_absent
from trainer.telemetry.time_breakdown import SAVE
from trainer.telemetry.training_log import TrainingLog
from trainer.training.parts import Parts
from trainer.training.position import INSIDE, Position, read_position
from trainer.training.saves import check_values
from trainer.training.stopping import Stopper

# maximum bytes of the data positions of all trainers together. Source: half of MAX_NOTE_BYTES of pserver.wire.protocol,
# which limits the message that contains these positions
NOTES_BYTES = 8 << 20


def wants_checkpoints(flags: Values) -> bool:
    """Return whether a run makes checkpoints. A local run makes checkpoints only if a flag for them is given."""
    asked = flags.checkpoint_period_by_batches or flags.checkpoint_period_seconds or flags.resume_from
    return bool(flags.job == "train" and (asked or not flags.local))


class CheckpointPolicy:
    """Decide when a checkpoint is made, and make checkpoints together with the other trainers.

    Attributes: is_on: whether this run makes checkpoints. If not, every method does nothing. newest: name of the last
        checkpoint of this run, or "". unsaved_steps: number of steps since this checkpoint.

    Args: clock: returns monotonic seconds.
    """

    def __init__(
        self,
        parts: Parts,
        stopper: Stopper,
        log: TrainingLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts, self._stopper, self._log, self._clock = parts, stopper, log, clock
        self._is_first = parts.flags.trainer_id == 0
        self._state = TrainerState(parts, log.sums)
        self._last = clock()
        self.newest, self.unsaved_steps = "", 0
        self._may_leave = False  # whether a signal has arrived, and a checkpoint has been made
        self.is_on = wants_checkpoints(parts.flags)
        if self.is_on:
            for source in (parts.train, parts.test):
                if source is not None:
                    source.track()
            if self._is_first:
                clean(parts.pass_directory(FOLDER))

    def is_wanted(self, batches: int) -> bool:
        """Return whether this trainer requests a checkpoint after the step with which `batches` batches are complete.

        Trainer 0 requests a checkpoint when a checkpoint period is over. With servers, a trainer that has received a
        signal also requests a checkpoint. In a local run a signal needs no request: the checkpoint follows the batch.
        """
        flags = self._parts.flags
        if not self.is_on:
            return False
        if not flags.local and self._stopper.is_waiting:
            return True
        if not self._is_first:
            return False
        period, seconds = flags.checkpoint_period_by_batches, flags.checkpoint_period_seconds
        return bool(period and batches % period == 0) or bool(seconds and self._clock() - self._last >= seconds)

    def mark(self) -> None:
        """Store the random states of this position, because a test may change them before `describe` is called."""
        if self.is_on:
            self._state.mark()

    def begin_test(self) -> None:
        """Store the random states of user code before a test, because a run that resumes here makes the test again."""
        if self.is_on:
            self._state.begin_test()

    def describe(self, position: Position) -> dict[str, Any] | None:
        """Return the state from which this trainer can resume at a position; None if the run makes no checkpoints."""
        return self._state.describe(position) if self.is_on else None

    def make(self, position: Position, name: str) -> None:
        """Make a checkpoint together with the other trainers. Trainer 0 writes it, and removes old checkpoints.

        Raises: DataError: a value is not finite.  VolumeError: the checkpoint cannot be written.
        """
        if not self.is_on:
            return
        parts, breakdown = self._parts, self._parts.reporter.breakdown
        if self._is_first:
            check_values(parts, position)
            self._log.end_dots()
        # If a signal has arrived, this trainer now has no time limit for its end. It ends when the checkpoint is
        # complete, or with an error when a peer is lost.
        self._stopper.ignore_limit()
        before = breakdown.switch(SAVE)
        own = self._state.describe(position) | ({LEAVES: True} if self._stopper.is_waiting else {})
        gathered = parts.session.updater.gather_checkpoint(own)
        if gathered is not None and self._is_first:
            glog.info(f"Saving a checkpoint to {parts.shown_directory(f'{FOLDER}/{name}')}")
            folder = Path(parts.pass_directory(FOLDER))
            write_checkpoint(folder / name, gathered, parts.session.table, parts.configs, position.record())
            keep_newest(folder, name, parts.flags.checkpoints_kept)
            self.newest = name
        self._last, self.unsaved_steps = self._clock(), 0
        breakdown.switch(before)
        parts.reporter.add_checkpoint(name)
        self._may_leave = not parts.flags.local and self._stopper.is_waiting

    def leave_if_made(self) -> None:
        """Raise StoppedError if a signal has arrived and a checkpoint has been made.

        Raises: StoppedError.
        """
        if self._may_leave:
            self._stopper.leave()

    def resume(self, own: Mapping[str, Any]) -> Position:
        """Restore a state that `describe` returned, and return its position. The parameters are not restored here.

        If the position is inside a pass, the data is read up to the position.

        Raises: DataError, MissingInputError: the provider raised an error, a sample is invalid, or `describe` has not
            written `own`.
        """
        with decoding(f"trainer {self._parts.flags.trainer_id}"):
            position = self._state.restore(own)
        self.mark()
        return position


class TrainerState:
    """The state from which one trainer can resume, without the parameters and the optimiser.

    Args: sums: the sums of the log lines, by name.
    """

    def __init__(self, parts: Parts, sums: Mapping[str, Accumulator]) -> None:
        self._parts, self._sums = parts, sums
        self._has_warned = False
        self._marked: tuple[int, dict[str, Any]] = (0, {})
        self._before_test: random_states.States | None = None  # at the first test since `mark`

    def mark(self) -> None:
        """Store the random states of this position."""
        self._marked = self._parts.session.stream.state, self._parts.session.network.carried()
        self._before_test = None

    def begin_test(self) -> None:
        """Store the states of the generators of Python and numpy, which the provider of the test data may use.

        While the provider of the training data is read, its thread changes these states at any time. A checkpoint then
        has the states of the beginning of that provider (see `DataSource.position`).
        """
        source = self._parts.train
        if self._before_test is None and (source is None or source.is_read):
            self._before_test = random_states.take()

    def describe(self, position: Position) -> dict[str, Any]:
        """Return the state at a position in a form that JSON can store."""
        parts = self._parts
        stream, network = self._marked
        batches = position.batches if position.stage == INSIDE else None
        return {
            "place": position.record(),
            ABSENT: find_absent(os.environ),
            "stream": stream,
            "network": network,
            "random": random_states.write(self._before_test or random_states.take()),
            "data": self._describe_source(parts.train, batches),
            "test": self._describe_source(parts.test, None),
            "moving": parts.session.moving(),
            "sums": {name: one.state() for name, one in self._sums.items()},
        }

    def _describe_source(self, source: BatchSource | None, batches: int | None) -> dict[str, Any] | None:
        if source is None:
            return None
        flags = self._parts.flags
        position = source.position(batches)
        size = sum(len(one["data"]) for one in position.values() if isinstance(one, dict) and "data" in one)
        if not flags.local and size > NOTES_BYTES // flags.num_gradient_servers:
            if not self._has_warned:
                glog.warning(
                    f"the order of {position.get('samples', 'the')} samples is too long to be stored by the servers: "
                    "a run that goes on from a checkpoint uses the samples in a different order"
                )
            self._has_warned = True
            position |= dict.fromkeys(position.keys() & {"order", "states"})
        return position

    def restore(self, own: Mapping[str, Any]) -> Position:
        """Restore a state that `describe` returned, and return its position."""
        parts = self._parts
        position = read_position(own["place"])
        glog.info(f"going on {position.stage} pass {position.number}, of which {position.batches} batches are done")
        for name, state in own["sums"].items():
            if name in self._sums:
                self._sums[name].put_back(state)
        if parts.test is not None and own["test"] is not None:
            parts.test.resume(own["test"], parts.batch_size)
        if parts.train is not None and own["data"] is not None:
            parts.train.resume(own["data"], parts.batch_size)
        # a provider that still runs must continue with the random states that `parts.train.resume` has left
        if own["data"] is None or own["data"]["is_read"]:
            random_states.put_back(own["random"])
        parts.session.put_back(own)
        return position

"""The checkpoints of programs: `SGD.train(checkpoint_dir=...)`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.saves import FOLDER, clean, list_saves, pass_name
from pserver.wire.checkpoint_blobs import LEAVES
from trainer.arrays.encoding import decoding
from trainer.data import random_states
from trainer.evaluators import Accumulator
from trainer.flags import Values
from trainer.session import Session
from trainer.storage.checkpoint import keep_newest, write_checkpoint
from trainer.storage.job_division import ABSENT, find_absent
from trainer.storage.job_inputs import read_resumed
from trainer.training.checkpoint_policy import wants_checkpoints
from trainer.training.position import INSIDE, Position, read_position
from trainer.v2.jobs.parts import READING
from trainer.v2.jobs.reports import saving

_RANDOM, _SUMS = "random", "sums"  # fields of a trainer's state, beside those of `Session.state`
_taken: list[bool] = []  # whether a training of this process has the checkpoints of the flags


class Checkpoints:
    """The checkpoints of one call of `SGD.train`: after each pass, and inside a pass as the flags say.

    A checkpoint has the number of trained batches, and the states of the random generators of Python and numpy at the
    beginning of the pass. A run that goes on calls the reader with these states, and drops the trained batches.

    Args: directory: the folder of the checkpoints. None: the first training of a process has those of the flags
        save_dir and resume_from, as `paddle train` has; the launcher of a pod gives these flags.
        resumes: whether the training goes on from the newest checkpoint in the folder.
        wants_end: returns whether the program ends after the present batch. tell: is told the name of each checkpoint
        that this trainer has written.
    """

    def __init__(
        self,
        session: Session,
        flags: Values,
        directory: Path | None,
        *,
        resumes: bool = True,
        wants_end: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._session, self._flags, self._wants_end, self._tell = session, flags, wants_end, tell
        self._is_first = flags.trainer_id == 0
        self._directory, self._resumed = directory, ""
        if directory is None:
            has_master = flags.is_task_job or READING
            if flags.save_dir and wants_checkpoints(flags) and not _taken and not has_master:
                self._directory, self._resumed = Path(flags.save_dir) / FOLDER, flags.resume_from
                _taken.append(True)
        elif resumes and self._is_first and (newest := list_saves(directory)[-1:]):
            self._resumed = str(directory / newest[0])
        self._random: Mapping[str, Any] = {}  # at the beginning of the pass
        self._sums: Mapping[str, Any] = {}  # of a pass that goes on
        self._last = time.monotonic()
        self._has_gathered = False  # whether trainer 0 has the state with which this trainer leaves

    @property
    def is_on(self) -> bool:
        """Whether there are checkpoints."""
        return self._directory is not None

    def connect(self) -> Position:
        """Connect the session, and return the position from which it trains.

        A further training with the same servers is connected, and goes on with their values.

        Raises: see `read_resumed` and `Session.resume`.
        """
        if self._session.is_connected:
            return Position(0)
        restored = None
        if self._directory is not None and self._is_first:
            clean(self._directory)
            given = {name: getattr(self._flags, name) for name in self._flags.given}
            flags = Values(given | {"resume_from": self._resumed})
            flags.number_trainer(0, self._flags.num_gradient_servers)
            restored = read_resumed(flags, self._session.table)
        own = self._session.resume(restored)
        if own is None:
            return Position(0)
        with decoding("this program"):
            self._random, self._sums = own.get(_RANDOM, {}), own.get(_SUMS, {})
            position = read_position(own["place"])
        if position.stage != INSIDE:
            self._put_back_random()
        glog.info(f"going on {position.stage} pass {position.number}, of which {position.batches} batches are done")
        return position

    def begin_pass(self, position: Position, whole: Accumulator) -> None:
        """Begin a pass, or go on in it; the caller then calls the reader."""
        if position.stage == INSIDE:
            self._put_back_random()
            if self._sums:
                whole.put_back(dict(self._sums))
        position.stage = INSIDE
        if self._directory is not None:
            self._random = random_states.write(random_states.take())

    def _put_back_random(self) -> None:
        if self._random:
            with decoding("this program"):
                random_states.put_back(dict(self._random))

    def is_wanted(self, batches: int) -> bool:
        """Return whether this trainer wants a checkpoint after the step with which `batches` batches are complete."""
        if self._directory is None:
            return False
        if self._wants_end():
            return True
        if not self._is_first:
            return False
        period, seconds = self._flags.checkpoint_period_by_batches, self._flags.checkpoint_period_seconds
        is_late = bool(seconds) and time.monotonic() - self._last >= seconds
        return is_late or bool(period and batches % period == 0)

    def may_leave(self, *, is_saved: bool) -> bool:
        """Return whether a program that is asked to end can end now, after a step.

        Without checkpoints it can. Trainer 0 ends when it has written the checkpoint. Another trainer ends after the
        next step: trainer 0 takes part in this step when it has written the checkpoint.

        Args: is_saved: whether a checkpoint was made after this step.
        """
        if self._directory is None:
            return True
        could, self._has_gathered = self._has_gathered, is_saved and self._wants_end()
        return could or (is_saved and self._is_first)

    def describe(self, position: Position, whole: Accumulator) -> dict[str, Any] | None:
        """Return the state of this trainer at the end of its pass, for a checkpoint that another trainer wants."""
        return None if self._directory is None else self._describe(position, whole)

    def save_inside(self, position: Position, whole: Accumulator) -> None:
        """Save a checkpoint inside a pass, together with the other trainers. Trainer 0 writes it.

        Raises: VolumeError: the checkpoint cannot be written.
        """
        position.checkpoints += 1
        self._save(position.name_inside(), position, whole)

    def save_pass(self, position: Position) -> None:
        """Save a checkpoint between two passes, if there are checkpoints; `position` is before the next pass.

        Raises: VolumeError: the checkpoint cannot be written.
        """
        if self._directory is not None:
            self._random = random_states.write(random_states.take())
            self._save(pass_name(position.number - 1), position)

    def _describe(self, position: Position, whole: Accumulator | None = None) -> dict[str, Any]:
        return {
            **self._session.state(),
            "place": position.record(),
            ABSENT: find_absent(os.environ),
            _RANDOM: self._random,
            _SUMS: {} if whole is None else whole.state(),
        }

    def _save(self, name: str, position: Position, whole: Accumulator | None = None) -> None:
        self._last = time.monotonic()
        own = self._describe(position, whole) | ({LEAVES: True} if self._wants_end() else {})
        with saving(self._session):
            gathered = self._session.updater.gather_checkpoint(own)
            if gathered is None or self._directory is None:
                return
            self._session.table.check_file_names()
            write_checkpoint(self._directory / name, gathered, self._session.table, {}, position.record())
        self._tell(name)
        glog.info(f"Saving a checkpoint to {self._directory / name}")
        keep_newest(self._directory, name, self._flags.checkpoints_kept)

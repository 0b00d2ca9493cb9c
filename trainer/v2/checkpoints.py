"""The checkpoints of programs: `SGD.train(checkpoint_dir=...)`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.saves import clean, list_saves, pass_name
from trainer.arrays.encoding import decoding
from trainer.data import random_states
from trainer.evaluators import Accumulator
from trainer.flags import Values
from trainer.session import Session
from trainer.storage.checkpoint import keep_newest
from trainer.storage.job_inputs import read_resumed
from trainer.training.position import INSIDE, Position, read_position

_RANDOM, _SUMS = "random", "sums"  # further fields of the place in a checkpoint


class Checkpoints:
    """The checkpoints of one call of `SGD.train`: after each pass, and inside a pass as the flags say.

    A checkpoint has the number of trained batches, and the states of the random generators of Python and numpy at the
    beginning of the pass. A run that goes on calls the reader with these states, and drops the trained batches.

    Args: directory: the folder of the checkpoints; None for a training without checkpoints.
        resumes: whether the training goes on from the newest checkpoint.
    """

    def __init__(self, session: Session, flags: Values, directory: Path | None, *, resumes: bool) -> None:
        self._session, self._flags, self._directory, self._resumes = session, flags, directory, resumes
        self._is_first = flags.trainer_id == 0
        self._random: Mapping[str, Any] = {}  # at the beginning of the pass
        self._sums: Mapping[str, Any] = {}  # of a pass that goes on
        self._last = time.monotonic()

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
            newest = list_saves(self._directory)[-1:] if self._resumes else []
            if newest:
                more = {"resume_from": str(self._directory / newest[0])}
                given = {name: getattr(self._flags, name) for name in self._flags.given} | more
                flags = Values(given)
                flags.number_trainer(0, self._flags.num_gradient_servers)
                restored = read_resumed(flags, self._session.table)
        place = self._session.resume(restored)
        if place is None:
            return Position(0)
        with decoding("this program"):
            self._random, self._sums = place.pop(_RANDOM, {}), place.pop(_SUMS, {})
            position = read_position({"batches": 0, **place})
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
        if self._directory is None or not self._is_first:
            return False
        period, seconds = self._flags.checkpoint_period_by_batches, self._flags.checkpoint_period_seconds
        is_late = bool(seconds) and time.monotonic() - self._last >= seconds
        return is_late or bool(period and batches % period == 0)

    def describe(self, position: Position, whole: Accumulator) -> dict[str, Any] | None:
        """Return the state of this trainer at the end of its pass, for a checkpoint that another trainer wants."""
        return None if self._directory is None else self._session.describe(self._place(position, whole))

    def save_inside(self, position: Position, whole: Accumulator) -> None:
        """Save a checkpoint inside a pass, together with the other trainers. Trainer 0 writes it.

        Raises: VolumeError: the checkpoint cannot be written.
        """
        position.checkpoints += 1
        self._save(position.name_inside(), self._place(position, whole))

    def save_pass(self, position: Position) -> None:
        """Save a checkpoint between two passes, if there are checkpoints; `position` is before the next pass.

        Raises: VolumeError: the checkpoint cannot be written.
        """
        if self._directory is not None:
            self._random = random_states.write(random_states.take())
            self._save(pass_name(position.number - 1), self._place(position))

    def _place(self, position: Position, whole: Accumulator | None = None) -> dict[str, Any]:
        return {**position.record(), _RANDOM: self._random, _SUMS: {} if whole is None else whole.state()}

    def _save(self, name: str, place: Mapping[str, Any]) -> None:
        self._last = time.monotonic()
        if self._directory is None:  # another trainer has asked for it, and trainer 0 writes it
            self._session.updater.gather_checkpoint(self._session.describe(place))
            return
        self._session.save(self._directory / name, place)
        if self._is_first:
            glog.info(f"checkpoint {self._directory / name}")
            keep_newest(self._directory, name, self._flags.checkpoints_kept)

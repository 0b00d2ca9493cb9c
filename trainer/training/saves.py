"""Save the parameters in pass directories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DataError
from paddle_base.runtime.saves import pass_name
from trainer.network import nan_checks
from trainer.storage.model_files import remove_pass, save_pass
from trainer.telemetry.legacy_words import AT
from trainer.telemetry.time_breakdown import SAVE
from trainer.training.parts import Parts
from trainer.training.position import AFTER, Position
from trainer.training.stopping import Stopper


class Saves:
    """The saves of one run.

    Attributes: unsaved_steps: number of steps since the last save. newest: name of the last save, or "".
    """

    def __init__(self, parts: Parts, stopper: Stopper) -> None:
        self._parts, self._stopper = parts, stopper
        self.unsaved_steps = 0
        self.newest = ""

    @contextmanager
    def before_test(self, name: str, position: Position) -> Iterator[None]:
        """Save the parameters, then run the `with` block, which tests them. Only trainer 0 saves.

        A fault of the test data therefore loses no pass.

        Raises: see `save`.
        """
        is_saved = self._parts.flags.trainer_id == 0
        with self.telling(name if is_saved else ""):
            if is_saved:
                with self._stopper, self._parts.session.updater.averaged():
                    self.write(name, position)
            yield

    @contextmanager
    def telling(self, name: str) -> Iterator[None]:
        """Write the log line of the save `name` after the `with` block, if the block has written it (before a test).

        get_best_pass of v0.10's demos takes the first pass directory after the line of a test for the tested one. The
        line of the save therefore follows the test, directly, although the save comes first.
        """
        try:
            yield
        finally:
            if name and name == self.newest:
                glog.info(f"Saving parameters to {self._parts.shown_directory(name)}", at=AT["save"])

    def save(self, name: str, position: Position) -> None:
        """Save the parameters in the directory `name`. Only trainer 0 saves.

        Raises: DataError: a value is not finite.  VolumeError: the directory cannot be written.
        """
        with self.before_test(name, position):
            pass

    def write(self, name: str, position: Position) -> None:
        """Save the present values of the parameters in the directory `name`, inside a block of `telling`.

        Raises: see `save`.
        """
        parts, breakdown = self._parts, self._parts.reporter.breakdown
        check_values(parts, position)
        parts.begin()  # this call is necessary if this trainer has had no batch
        before = breakdown.switch(SAVE)
        save_pass(parts.pass_directory(name), parts.session.table, parts.configs, parts.save_tables)
        breakdown.switch(before)
        parts.reporter.add_save(parts.shown_directory(name))
        older = position.number - parts.flags.saving_period
        if parts.flags.save_only_one and older >= 0:
            remove_pass(parts.pass_directory(pass_name(older)))
        self.unsaved_steps, self.newest = 0, name

    def save_stopped(self, position: Position) -> None:
        """Save the steps since the last save, after a signal in a run without checkpoints."""
        if position.stage == AFTER:
            self.save(pass_name(position.number), position)
        elif position.batches:
            self.save(pass_name(position.number, position.saves + 1), position)
        else:  # the steps belong to the previous pass, which was not saved
            self.save(pass_name(position.number - 1), position)


def check_values(parts: Parts, position: Position) -> None:
    """Check that all values are finite.

    Raises: DataError: the text names a parameter with a value that is not finite.
    """
    session = parts.session
    wrong = nan_checks.find_bad_value(session.table)
    if wrong:
        raise DataError(
            f"parameter {wrong} has values that are not finite after batch {position.batches} of pass "
            f"{position.number}; they are not saved: {nan_checks.describe_users(session.network, wrong)}; a lower "
            "learning_rate may help"
        )

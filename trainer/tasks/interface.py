"""What the training in tasks wants of the master and of the updater."""

from __future__ import annotations

from typing import Protocol

from master.client import PassOver, TaskGrant
from master.tasks.records import TaskView
from trainer.updaters.local import Updater


class TaskMaster(Protocol):
    """The master, as a trainer that has joined sees it; `master.client.MasterClient` says what the methods do."""

    @property
    def number(self) -> int:
        """The number of this trainer."""

    @property
    def num_passes(self) -> int:
        """The passes of the job."""

    @property
    def view(self) -> TaskView:
        """The trainers that have a task."""

    def get_task(self, pass_number: int) -> TaskGrant | PassOver:
        """Return a task of a pass, or that the pass is over; wait as long as others may still give tasks back."""

    def finish(self, task: TaskGrant, samples: int, *, wants_next: bool) -> bool:
        """Say that a task is trained, and ask for the next one at once; False: another trainer has it by now."""

    def fail(self, task: TaskGrant, reason: str, samples: int) -> bool:
        """Say that a task cannot be trained; `samples` of it were."""

    def give_back(self, task: TaskGrant, samples: int, patience: float | None = None) -> bool:
        """Say that this trainer does not go on with a task, of which it has trained `samples`."""

    def request_save(self, pass_number: int, block: float) -> str:
        """Return whether this trainer is the one that saves the model of a pass that is over."""

    def report_saved(self, pass_number: int) -> bool:
        """Say that the model is saved."""

    def leave(self) -> None:
        """Leave the job; a task that was not finished goes to others at once."""


class TaskUpdater(Updater, Protocol):
    """An updater whose trainers come and go: it waits for no other trainer at the ends of a pass."""

    def set_pass(self, number: int) -> None:
        """Say to which pass the steps from now on belong; all passes before are over, for all trainers.

        Also before `finish_pass`, which only a trainer calls that tests or saves the pass.
        """

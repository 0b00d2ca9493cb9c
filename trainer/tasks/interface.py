"""The interfaces of the master and of the updater that training with tasks uses."""

from __future__ import annotations

from typing import Protocol

from master.client import PassOver, TaskGrant
from master.tasks.records import TaskView
from trainer.updaters.local import Updater


class TaskMaster(Protocol):
    """The master for a trainer that has joined the job. `master.client.MasterClient` describes the methods."""

    @property
    def number(self) -> int:
        """The number of this trainer."""

    @property
    def num_passes(self) -> int:
        """The number of passes of the job."""

    @property
    def view(self) -> TaskView:
        """The ids of the trainers that have a task."""

    def get_task(self, pass_number: int) -> TaskGrant | PassOver:
        """Return a task of a pass, or the message that the pass is over. Wait while other trainers may return tasks."""

    def finish(self, task: TaskGrant, samples: int, *, wants_next: bool) -> bool:
        """Report a trained task. Return False if another trainer has the task now.

        Args: wants_next: whether to request the next task, too.
        """

    def fail(self, task: TaskGrant, reason: str, samples: int) -> bool:
        """Report that a task cannot be trained to its end.

        Args: samples: the number of the task's samples that this trainer has trained.
        """

    def give_back(self, task: TaskGrant, samples: int, patience: float | None = None) -> bool:
        """Return a task to the master.

        Args: samples: the number of the task's samples that this trainer has trained.
        """

    def request_save(self, pass_number: int, block: float) -> str:
        """Return whether this trainer must save the model of a pass that is over."""

    def report_saved(self, pass_number: int) -> bool:
        """Report that the model is saved."""

    def leave(self) -> None:
        """Leave the job. The master assigns an unfinished task to another trainer at once."""


class TaskUpdater(Updater, Protocol):
    """An updater for trainers that join and leave. No trainer waits for others when a pass begins or ends."""

    def set_pass(self, number: int) -> None:
        """Set the pass of the next steps. For all trainers the earlier passes are over.

        This method is also called before `finish_pass`. Only the trainer that tests or saves the pass calls
        `finish_pass`.
        """

"""The interface through which training with tasks uses the master."""

from __future__ import annotations

from typing import Protocol

from paddle_cluster.master.client import PassOver, TaskGrant
from paddle_cluster.master.tasks.records import TaskView


class TaskMaster(Protocol):
    """The master of a job that this trainer has joined. `MasterClient` of `paddle_cluster.master.client` has them."""

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
        """Report that a task has been trained. Return False if another trainer has the task now.

        Args: samples: the number of trained samples. wants_next: whether to request the next task, too.
        """

    def fail(self, task: TaskGrant, reason: str, samples: int) -> bool:
        """Report that a task cannot be trained to its end.

        Args: samples: the number of the task's samples that this trainer has trained.
        """

    def give_back(self, task: TaskGrant, samples: int, patience: float | None = None) -> bool:
        """Return a task to the master.

        Args: samples: the number of the task's samples that this trainer has trained. patience: maximum seconds to wait
            for the master, or None for the usual time.
        """

    def request_save(self, pass_number: int, block: float) -> str:
        """Ask to save the model of a pass that is over. Return the answer, for example `GRANTED`.

        Args: block: the seconds in which the master asks no other trainer to save the pass.
        """

    def report_saved(self, pass_number: int) -> bool:
        """Report that the model of a pass has been saved."""

    def leave(self) -> None:
        """Leave the job. The master assigns an unfinished task to another trainer at once."""

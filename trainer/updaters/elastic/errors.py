"""Errors that the training loop of tasks handles."""

from __future__ import annotations

from runtime.errors import PaddleError


class TaskTakenError(PaddleError):
    """The master does not count this trainer among the trainers with a task: the current batch is dropped.

    The loop returns the task, in case the master still counts it as this trainer's task, and requests the next task.
    """

    exit_code = 75

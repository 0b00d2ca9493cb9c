"""Errors that the training loop of tasks handles."""

from __future__ import annotations

from paddle_base.runtime.errors import PaddleError


class TaskTakenError(PaddleError):
    """The master no longer counts this trainer among the trainers with a task. The current batch is dropped.

    The loop returns the task, because the master may still count it as this trainer's task. After returning the task,
    the loop requests the next task.
    """

    exit_code = 75

"""Errors that the loop of tasks handles."""

from __future__ import annotations

from runtime.errors import PaddleError


class TaskTakenError(PaddleError):
    """The master does not count this trainer among those with a task: the current batch is dropped.

    The loop returns the task, in case the master does not know yet, and requests the next one.
    """

    exit_code = 75

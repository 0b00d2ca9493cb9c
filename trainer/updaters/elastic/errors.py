"""What the loop that trains tasks does something about."""

from __future__ import annotations

from runtime.errors import PaddleError


class TaskTakenError(PaddleError):
    """The master counts this trainer among those without a task: the batch in hand is dropped.

    The loop gives the task back, in case that the master has not heard of it, and asks for the next one.
    """

    exit_code = 75

"""Waits for what another process or thread does: by its deadline a wait fails and says what it waited for."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

DEADLINE_S = 60.0  # of a wait in a test: a busy machine is slow, and only what fails waits so long
LOOK_S = 0.01
LAST_WORDS = 3000  # bytes of a log that a failed wait shows
Found = TypeVar("Found")


def until(
    condition: Callable[[], Found], what: object = None, seconds: float = DEADLINE_S, *, log: Path | None = None
) -> Found:
    """Returns the first value of the condition that is true.

    Args: what: of the sentence "waited 60 s for WHAT"; an object becomes text only in the error; if none is given, the
    condition's own lines.  log: a file whose end the error shows.
    Raises: AssertionError: the deadline has passed.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            told = inspect.getsource(condition).strip() if what is None else what
            raise AssertionError(f"waited {seconds:g} s for {told}{last_words(log)}")
        time.sleep(LOOK_S)
    return found


def last_words(log: Path | None) -> str:
    """The end of a log as a part of an error; empty if there is no log."""
    if log is None or not log.exists():
        return ""
    return f"; the end of {log.name}:\n{log.read_bytes()[-LAST_WORDS:].decode(errors='replace')}"

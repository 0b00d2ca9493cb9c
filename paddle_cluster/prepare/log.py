"""The log of the data job. Each line is about one step, and goes unbuffered to stderr."""

from __future__ import annotations

import contextlib
import sys


def say(message: str) -> None:
    """Write one line of the data job's log."""
    if sys.stderr is not None:  # sys.stderr is None if the shell's `2>&-` has closed it
        with contextlib.suppress(OSError):  # the disk is full or the reader has exited
            sys.stderr.write(f"prepare: {message}\n")
            sys.stderr.flush()

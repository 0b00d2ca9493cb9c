"""One line per step on stderr, unbuffered."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """Write one line of the data job's log."""
    sys.stderr.write(f"prepare: {message}\n")
    sys.stderr.flush()

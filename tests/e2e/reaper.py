"""Kills what a run of tests leaves behind; `python -I -S reaper.py VALUE` with a pipe as standard input.

The pipe closes when the process that has started this one ends, even by SIGKILL. Then all processes with MARK=VALUE in
their environment are killed, in whatever session they are.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

MARK = "OF_TEST_RUN"  # in the environment of each process that a test starts


def find_marked(mark: bytes) -> list[int]:
    """Return the ids of the processes, except this one, that have this `MARK=VALUE` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [process for process in found if process != os.getpid()]


def main(value: str) -> None:
    """Wait for the end of standard input, and kill the marked processes until there is none."""
    os.read(0, 1)
    while marked := find_marked(f"{MARK}={value}".encode()):
        for process in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])

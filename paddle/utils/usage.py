"""`paddle usage` prints the facts about a finished job that v0.10 sent to its vendor. This program sends nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle.utils.log_lines import read_log
from paddle_base.runtime.errors import UsageError
from trainer.command_line import command

HELP = """usage: paddle usage [-e EXIT_CODE] [-l LOG_FILE] [-n TASK_NAME] [-u GIT_USER] [-v] [--dry-run]
Shows task, exit code and duration of a training job. Nothing is sent to anyone.
    -e, --exit-code   the exit code of the job
    -l, --log-file    the log of the job, from which the duration is taken
    -n, --task-name   the name of the job
    -u, --git-user    accepted, but without effect
    -v, --dry-run     accepted, but without effect
"""
_VALUES = {"-e": "exit code", "-l": "log", "-n": "task", "-u": "user"}
_LONG = {"--exit-code": "-e", "--log-file": "-l", "--task-name": "-n", "--git-user": "-u"}
FLAGS = (*_VALUES, *_LONG, "-v", "--dry-run")
_TIME = re.compile(r"^\S*[IWEF]\d{4} (\d\d):(\d\d):(\d\d)\.")
_DAY_S = 86400


@command("paddle usage", HELP)
def main(argv: Sequence[str]) -> None:
    """Print the facts about the job."""
    sys.stdout.write(describe(argv))


def describe(argv: Sequence[str]) -> str:
    """Return the lines about the job that the arguments describe.

    Raises: UsageError: the arguments do not fit HELP.  MissingInputError: the log does not exist.
    """
    given: dict[str, str] = {}
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        flag = _LONG.get(name, name)
        if flag in ("-v", "--dry-run"):
            continue
        if flag not in _VALUES:
            raise UsageError(f"unknown option {name}; {HELP.splitlines()[0]}")
        if not equals and not rest:
            raise UsageError(f"{name} needs a value; {HELP.splitlines()[0]}")
        given[flag] = value if equals else rest.pop(0)
    lines = [f"{_VALUES[flag]}: {given[flag]}\n" for flag in ("-n", "-e") if flag in given]
    if "-l" in given:
        lines.append(f"duration: {measure_log(given['-l'])} s\n")
    return "".join([*lines, "Nothing is sent to anyone.\n"])


def measure_log(path: str) -> int:
    """Return the seconds from the first to the last line of a log, at most a day.

    Raises: MissingInputError: the log cannot be read.  DataError: the log is too large.
    """
    times = [_TIME.match(line) for line in read_log(Path(path))]
    seconds = [int(one[1]) * 3600 + int(one[2]) * 60 + int(one[3]) for one in times if one]
    return (seconds[-1] - seconds[0]) % _DAY_S if seconds else 0


if __name__ == "__main__":
    sys.exit(main())

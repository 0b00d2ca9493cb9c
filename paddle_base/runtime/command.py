"""The common part of all command lines: values of flags, the manual, and the exit status."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, InterruptError, PaddleError
from paddle_base.runtime.gflags import LIBRARY_HELP, Flag, Status, Value, read_arguments, read_seconds

HELP = {"-h", "--help", "-help"}


@dataclass(frozen=True)
class FlagValues:
    """The values of all flags of a program, and the given flags that have no effect in this program."""

    values: dict[str, Value]
    ignored: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, arguments: Sequence[str], flags: Mapping[str, Flag]) -> Self:
        """Return the values of all flags of a command line.

        Raises: UsageError: a flag is malformed, out of bounds, or unknown; the message names the closest known flag.
        """
        given = read_arguments(arguments, flags)
        defaults = {flag.name: flag.default for flag in flags.values()}
        return cls(defaults | given, [name for name in given if flags[name].status is Status.QUIET])

    def log_command(self, program: str, arguments: Sequence[str]) -> None:
        """Log the command line, and warn of given flags that have no effect."""
        glog.info(f"commandline: {' '.join([program, *arguments])} ", at="Util.cpp:166")
        if self.ignored:
            listed = ", ".join(f"--{name}" for name in self.ignored)
            glog.warning(f"these flags are accepted, but have no effect here: {listed}")

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """Return the value of an integer flag."""
        return int(self.values[name])

    def seconds(self, name: str) -> float:
        """Return the value of a time flag in seconds.

        Raises: UsageError: the value is not a time.
        """
        return read_seconds(name, self.text(name))

    def items(self, *names: str) -> list[str]:
        """Return the items of a comma-separated list, the value of the first of the given flags that has a value."""
        text = next((self.text(name) for name in names if self.text(name)), "")
        return [one.strip() for one in text.split(",") if one.strip()]


def format_flags(flags: Mapping[str, Flag]) -> list[str]:
    """Return the lines of a manual that describe each flag."""
    lines = []
    for flag in flags.values():
        note = "" if flag.status is Status.SUPPORTED else "no effect: "
        default = str(flag.default).lower() if isinstance(flag.default, bool) else str(flag.default)
        lines.append(f"  --{flag.name}={default}".ljust(41) + " " + note + flag.meaning)
    return [*lines, "", LIBRARY_HELP]


def run_program(argv: Sequence[str] | None, manual: Callable[[], str], run: Callable[[list[str]], int]) -> int:
    """Run a program and return its exit status; print an expected error as one log line.

    Args: argv: the arguments; None: the arguments of this process.  manual: function that returns the text for --help.
        run: function that runs the program and returns its exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if HELP & set(arguments):
        sys.stdout.write(manual())
        return 0
    try:
        return run(arguments)
    except InterruptError as exc:
        glog.info(str(exc))
        return exc.exit_code
    except PaddleError as exc:
        glog.fatal(" ".join(str(exc).split("\n")))
        return exc.exit_code
    except Exception:
        traceback.print_exc()
        return BugError.exit_code

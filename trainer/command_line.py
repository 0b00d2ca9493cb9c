"""The small commands read their arguments with argparse; after an error they end with this project's exit statuses."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from paddle_base.runtime.errors import PaddleError, UsageError
from paddle_base.runtime.gflags import suggest_flag


class Main(Protocol):
    """The main program of a command. `argv` is the list of its arguments; None means the arguments of the process."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Return the exit status."""
        ...


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of ending the process with status 2."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}{suggest_flag(message, self.format_help())}; {self.format_usage().strip()}")


def command(name: str, manual: str = "") -> Callable[[Callable[[Sequence[str]], int | None]], Main]:
    """Return a decorator that turns a function into a main program. The function returns an exit status, or None for 0.

    The program writes a PaddleError to stderr as one line.
    Args: name: the name of the command in error messages. manual: the text that --help prints; if the text is "", the
        function itself handles --help.
    """

    def decorate(run: Callable[[Sequence[str]], int | None]) -> Main:
        @functools.wraps(run)
        def main(argv: Sequence[str] | None = None) -> int:
            arguments = list(sys.argv[1:] if argv is None else argv)
            if manual and {"-h", "--help"} & set(arguments):
                sys.stdout.write(manual)
                return 0
            try:
                return run(arguments) or 0
            except PaddleError as error:
                sys.stderr.write(f"{name}: {error}\n")
                return error.exit_code

        return main

    return decorate

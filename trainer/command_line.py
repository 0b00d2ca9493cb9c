"""Command lines of the small commands: argparse, with this project's exit status for errors."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from runtime.errors import PaddleError, UsageError


class Main(Protocol):
    """The main program of a command. Without arguments it takes those of the process."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Return the exit status."""
        ...


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of ending the process with status 2."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}; {self.format_usage().strip()}")


def command(name: str, manual: str = "") -> Callable[[Callable[[Sequence[str]], int | None]], Main]:
    """Return a decorator that makes the main program of a small command, whose exit status 0 may be None.

    The program writes an expected error as one line to stderr. Without arguments it takes those of the process.
    Args: manual: printed for --help; empty: the function itself does that.
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

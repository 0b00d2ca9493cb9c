"""`paddle run PROGRAM.py [ARG ...]` runs a program of 2017, also one in the syntax of Python 2, as `python` would.

An exception of the program itself is printed as `python` prints it; an error of this project is one line with the
program's file and line.
"""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from paddle_base.runtime.errors import MissingInputError, PaddleError, UsageError
from trainer.command_line import command
from trainer.config.scripts.python2_syntax import run_program
from trainer.config.scripts.script_errors import explain

HELP = """usage: paddle run PROGRAM.py [ARG ...]
    PROGRAM.py    a program of paddle.v2, or any other; its directory comes first on the module path
    ARG ...       the program finds them in sys.argv

A file in the syntax of Python 2 is converted in memory, with its line numbers: the file and the
modules beside it. Python 3 runs as it is. docs/porting.md says what is left to do by hand.
"""
_FAILED = 1  # the status with which `python` ends after an exception


@command("paddle run")
def main(argv: Sequence[str]) -> int:
    """Run the program, and return its exit status.

    Raises: UsageError, MissingInputError: there is no such program.  PaddleError: one of this project, with the line
        of the program that it came from.  SystemExit: the program's own.
    """
    if argv[:1] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    if not argv or argv[0].startswith("-"):
        raise UsageError(f"the program is missing; {HELP.partition(chr(10))[0]}")
    path = Path(argv[0])
    try:
        path.open("rb").close()
    except OSError as error:
        raise MissingInputError(f"the program {path} cannot be read: {error.strerror}; correct its name") from error
    try:
        run_program(path, list(argv[1:]))
    except Exception as error:
        sys.last_value = error  # as `python` does: what the program has left for its end sees that it has failed
        if isinstance(error, PaddleError | SyntaxError) and (said := explain(error, str(path))):
            raise said from error
        _print_from(path, error)
        return _FAILED
    return 0


def _print_from(path: Path, error: Exception) -> None:
    """Print an exception as `python` does: from the line of the program, without the frames of this command."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace or error.__traceback__))

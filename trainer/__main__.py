"""`paddle train`: parses the flags, runs the session, and turns errors into one line and an exit code."""
from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

from pserver import glog
from pserver.errors import BugError, PaddleError, StoppedError
from trainer.flags import Values, help_text, list_warnings, parse_flags
from trainer.logs import AT


def main(argv: Sequence[str] | None = None) -> int:
    """Run `paddle train` with these arguments and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "-help"} & set(arguments):
        sys.stdout.write(help_text())
        return 0
    glog.info(f"commandline: paddle train {''.join(f'{argument} ' for argument in arguments)}", at=AT["commandline"])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        run(parse_flags(arguments))
    except PaddleError as error:
        glog.fatal(" ".join(str(error).split("\n")))
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return BugError.exit_code
    return 0


def run(flags: Values) -> None:
    """Run the job that the flags ask for.

    Raises: PaddleError: whatever ends it before its end.
    """
    # imported here, so that a wrong flag is answered at once
    from trainer.assembly import Assembly

    for line in list_warnings(flags):
        glog.warning(line)
    assembly = Assembly(flags)
    if flags.job == "test":
        assembly.testing().run()
        return
    training, updater = assembly.training()
    try:
        training.run()
    except BaseException as error:
        updater.abort(f"{type(error).__name__}: {error}")
        raise


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedError(f"stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())

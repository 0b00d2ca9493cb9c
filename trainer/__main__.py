"""`paddle train`: parses the flags, runs the session, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pserver import glog
from pserver.errors import BugError, PaddleError
from trainer.flags import help_text, list_warnings, parse_flags
from trainer.legacy import AT, DONE_TEXT
from trainer.readings import Watched
from trainer.stopping import STOPPER, ignore_signals

if TYPE_CHECKING:
    from trainer.session import Training
    from trainer.updater import Updater


def main(argv: Sequence[str] | None = None) -> int:
    """Run `paddle train` with these arguments and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "-help"} & set(arguments):
        sys.stdout.write(help_text())
        return 0
    return report("paddle train", arguments, run)


def report(program: str, arguments: Sequence[str], job: Callable[[Sequence[str]], None]) -> int:
    """Run a job with these arguments and return its exit status; an error that is not our bug is one line."""
    glog.info(f"commandline: {program} {''.join(f'{argument} ' for argument in arguments)}", at=AT["commandline"])
    STOPPER.install()
    try:
        job(arguments)
    except PaddleError as error:
        glog.fatal(" ".join(str(error).split("\n")))
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return BugError.exit_code
    return 0


def run(arguments: Sequence[str]) -> None:
    """Run the job that the flags ask for.

    Raises: PaddleError: whatever ends it before its end.
    """
    flags = parse_flags(arguments)
    if flags.version:
        sys.stdout.write(DONE_TEXT)
        return
    if flags.log_json:
        attempt = os.environ.get("PADDLE_ATTEMPT", "")
        glog.to_json(flags.log_json, role="trainer", number=flags.trainer_id, attempt=attempt)
    with STOPPER:  # an import of a compiled module turns what a signal raises into an error of its own
        # imported here, so that a wrong flag is answered at once
        from kernels import flush_denormals
        from trainer.assembly import Assembly

    for line in list_warnings(flags):
        glog.warning(line)
    flush_denormals()
    with Watched(flags) as readings:
        assembly = Assembly(flags)
        try:
            job = assembly.training() if flags.job in ("train", "time") else None
            readings.begin(job[0].reporter if job else None)
            if job is not None:
                _train(*job)
            elif flags.job == "test":
                assembly.testing().run()
            else:
                assembly.gradient_checking().run()
        finally:
            assembly.end()


def _train(training: Training, updater: Updater) -> None:
    try:
        training.run()
    except BaseException as error:
        ignore_signals()
        reason = str(error) if isinstance(error, PaddleError) else f"{type(error).__name__}: {error}"
        updater.abort(reason)
        training.end(error.exit_code if isinstance(error, PaddleError) else BugError.exit_code, reason)
        raise
    training.end(0)


if __name__ == "__main__":
    sys.exit(main())

"""The main program of `paddle train` parses the flags, runs the job, and logs an error before it returns a status."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paddle_base.runtime import glog
from paddle_base.runtime.errors import BugError, InterruptError, PaddleError
from paddle_base.runtime.gflags import LIBRARY_HELP
from paddle_base.runtime.processor.blas import limit_threads
from trainer.flags import help_text, list_warnings, parse_flags
from trainer.telemetry.legacy_words import AT, DONE_TEXT
from trainer.telemetry.place import leave_place
from trainer.telemetry.trainer_metrics import TrainerMetrics, Watched
from trainer.training.stopping import STOPPER, ignore_signals

if TYPE_CHECKING:
    from trainer.training.assembly import Assembly
    from trainer.training.loop import BatchLoop


def main(argv: Sequence[str] | None = None) -> int:
    """Run `paddle train` with these arguments and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help", "-help"} & set(arguments):
        sys.stdout.write(f"{help_text()}\n{LIBRARY_HELP}\n")
        return 0
    return report("paddle train", arguments, run)


def report(program: str, arguments: Sequence[str], job: Callable[[Sequence[str]], None]) -> int:
    """Run a job with these arguments, and return its exit status.

    Every error is logged. A PaddleError is logged in one line.
    """
    glog.info(f"commandline: {program} {''.join(f'{argument} ' for argument in arguments)}", at=AT["commandline"])
    STOPPER.install()
    try:
        job(arguments)
    except InterruptError as error:
        glog.info(str(error))
        return error.exit_code
    except PaddleError as error:
        glog.fatal(" ".join(str(error).split("\n")))
        return error.exit_code
    except ModuleNotFoundError:
        raise  # the command explains an absent package; a module that a script lacks is a PaddleError above
    except Exception:
        glog.set_bottom_line("")
        traceback.print_exc()
        return BugError.exit_code
    finally:
        glog.set_bottom_line("")
    return 0


def run(arguments: Sequence[str]) -> None:
    """Run the job that the flags select.

    Raises: PaddleError: the error that ends the job early.
    """
    flags = parse_flags(arguments)
    if flags.version:
        sys.stdout.write(DONE_TEXT)
        return
    leave_place()
    workers_change = False  # whether workers may join and leave during the training (`paddle elastic run`)
    if flags.collective:
        from trainer.updaters.collective import join_workers

        workers_change = join_workers(flags)
    line = limit_threads(os.environ, flags.trainer_count, f"--trainer_count={flags.trainer_count}")
    if flags.log_json:
        attempt = os.environ.get("PADDLE_ATTEMPT", "")
        number = None if flags.is_task_job else flags.trainer_id
        glog.to_json(flags.log_json, role="trainer", number=number, attempt=attempt)
    # Signals wait until the imports end. If a signal handler raised an exception during the import of a compiled
    # module, the import would replace it by an exception of another type.
    with STOPPER:
        # These imports take 0.59 s of CPU time (median of nine). The imports come after the parsing of the flags,
        # because --help and wrong flags can then be answered in 0.07 s. The garbage collector is disabled, because it
        # finds nothing to free during imports and would make them 10 % slower.
        gc.disable()
        from paddle_base.kernels import flush_denormals, keep_memory
        from trainer.training.assembly import Assembly

        make: type[Assembly] = Assembly
        if flags.is_task_job:
            from trainer.tasks.assembly import TaskAssembly

            make = TaskAssembly
        elif workers_change:
            from trainer.collective.assembly import DividedAssembly

            make = DividedAssembly
        gc.enable()
    if line:
        glog.info(line)
    for line in list_warnings(flags):
        glog.warning(line)
    flush_denormals()
    keep_memory()
    with Watched(flags) as metrics:
        assembly = make(flags)
        try:
            _run_job(flags.job, assembly, metrics)
        finally:
            assembly.end()


def _run_job(kind: str, assembly: Assembly, metrics: TrainerMetrics) -> None:
    training = assembly.training() if kind in ("train", "time") else None
    metrics.begin(training.parts.reporter if training else None, assembly.number)
    if training is not None:
        _train(training)
    elif kind == "test":
        assembly.testing().run()
    elif kind == "checkgrad":
        assembly.gradient_checking().run()


def _train(training: BatchLoop) -> None:
    reporter = training.parts.reporter
    try:
        training.run()
    except BaseException as error:
        ignore_signals()
        reason = str(error) if isinstance(error, PaddleError) else f"{type(error).__name__}: {error}"
        training.parts.session.updater.abort(reason)
        reporter.end(error.exit_code if isinstance(error, PaddleError) else BugError.exit_code, reason)
        raise
    ignore_signals()  # the model is saved, and a signal must not prevent the reporter from recording the end
    reporter.end(0)


if __name__ == "__main__":
    sys.exit(main())

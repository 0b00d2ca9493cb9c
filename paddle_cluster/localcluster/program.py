"""`paddle localcluster run MANIFEST`: runs the Job of a manifest on this machine."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from paddle_cluster.localcluster.errors import HostError, LocalClusterError, OptionError, WaitError
from paddle_cluster.localcluster.flags import build_parser

try:
    from paddle_cluster.localcluster.cluster import Cluster
    from paddle_cluster.localcluster.host import find_entrypoint, load_job
    from paddle_cluster.localcluster.job.policy import SIGNALLED
    from paddle_cluster.localcluster.pods.report import ConsoleReporter, JobReporter
    from paddle_cluster.localcluster.result import Result, tail
except ModuleNotFoundError as absent:
    if absent.name not in ("trustme", "yaml"):
        raise
    sys.stderr.write(f"localcluster: no module {absent.name}: pip install 'paddle-on-kubernetes[localcluster]'\n")
    sys.exit(HostError.exit_code)

CAUSE_LINES = 3
CLOCK_STEP_S = 2.0  # maximum seconds between the write of a file and its modification time, which may be rounded down
PASSES = r"0@ (Pass=\d+ Batch|Test samples)="  # the default of --follow: lines about the progress of trainer 0


def _pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or (flag == "--volume" and not value):
            raise OptionError(f"{flag} {text}: the form is NAME={'DIR' if flag == '--volume' else 'VALUE'}")
        pairs[name] = value
    return pairs


def run(arguments: argparse.Namespace) -> int:
    """Run the Job and return the exit status.

    Raises: LocalClusterError: if the Job cannot be started.
    """
    try:
        job = load_job(arguments.manifest, arguments.job)
    except LocalClusterError as error:
        raise type(error)(f"{arguments.manifest}: {error}") from error
    began = time.time()
    volumes = _pairs(arguments.volume, "--volume")
    # listed before `Cluster` makes them
    missing = [directory for directory in volumes.values() if not os.path.exists(directory)]  # noqa: PTH110
    reporter = ConsoleReporter(arguments.follow or ([] if arguments.quiet else [PASSES]), arguments.quiet)
    cluster = Cluster(
        job,
        volumes=volumes,
        env=_pairs(arguments.env, "--env"),
        logs=arguments.logs,
        entrypoint=arguments.entrypoint or find_entrypoint(arguments.manifest),
        kill=arguments.kill,
        term=arguments.term,
        delay=arguments.delay,
        backoff_seconds=arguments.backoff_seconds,
        grace=arguments.grace,
        reporter=reporter,
    )
    stops = 0

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal stops
        stops += 1
        reason = "Terminated" if signum == signal.SIGTERM else "Interrupted"
        # a user who asks a second time does not want to wait
        cluster.stop(reason, f"by {signal.Signals(signum).name}", grace=None if stops == 1 else 0.0)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    for path in cluster.swept:
        reporter.say(f"removed {path}, the temporary directory of a localcluster that was killed")
    for directory in [] if arguments.quiet else missing:
        reporter.say(f"made the directory {directory} for a volume")
    pods = "1 pod" if job.parallelism == 1 else f"{job.parallelism} pods"
    reporter.say(f"job/{job.name}: {pods}; their logs are in {cluster.logs}")
    with cluster:
        try:
            result = cluster.wait(arguments.timeout)
        except WaitError:
            cluster.stop("Timeout", f"the Job did not end within {arguments.timeout:g} s")
            result = cluster.wait()
    say_end(cluster, result, reporter, began)
    if result.outcome.reason in SIGNALLED and _is_written(cluster.output / "job.json", began):
        reporter.say(f"job/{job.name}: to go on from its newest save, run the same command again")
    elif not result.outcome.is_complete and any(_is_written(one, began) for one in cluster.output.glob("pass-*/done")):
        reporter.say(f"job/{job.name}: without the fault, the same command goes on from its newest save")
    return result.exit_status


def say_end(cluster: Cluster, result: Result, reporter: JobReporter, began: float) -> None:
    """Print how the Job ended and where its files are, and keep the outputs of a Job that did not complete.

    Args: began: the start of the run in seconds since the epoch; a report that is older belongs to an earlier run.
    """
    job, outcome = cluster.job, result.outcome
    is_gone = cluster.own_logs is not None and outcome.is_complete
    if cluster.own_logs is not None and not outcome.is_complete:
        cluster.own_logs.keep()
    succeeded = sum(pod.phase == "Succeeded" for pod in result.pods)
    logs = "" if is_gone else f"; the pods' logs are in {cluster.logs}"
    reporter.say(
        f"job/{job.name}: {outcome.type} ({outcome.reason}: {outcome.message}); {succeeded} of "
        f"{job.completions or 1} succeeded in {result.seconds:.1f} s{logs}"
    )
    if _is_written(report := cluster.output / "report.html", began):
        reporter.say(f"job/{job.name}: the report is an HTML page: {report}")
    if result.cause is not None:
        for line in tail(result.cause.log, CAUSE_LINES):
            reporter.say(f"{result.cause.name}| {line}")


def _is_written(path: Path, began: float) -> bool:
    """Return whether this run has written a file."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime >= began - CLOCK_STEP_S
    return False


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    if sys.stdout is None:  # the shell's `>&-` closed stdout, and the next opened file would get its file descriptor
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        # the output of pods can contain characters outside the terminal's encoding
        sys.stdout.reconfigure(errors="replace")
    try:
        return run(build_parser().parse_args(argv))
    except LocalClusterError as error:
        sys.stderr.write(f"localcluster: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:  # Ctrl-C before the Job has begun
        return SIGNALLED["Interrupted"]


def end(status: int) -> NoReturn:
    """End the process with a status. After a Ctrl-C, end by SIGINT, which shows the parent process the cause."""
    if status == SIGNALLED["Interrupted"]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    with contextlib.suppress(OSError):  # flush raises OSError if the reader of the output has exited
        sys.stdout.flush()
        sys.exit(status)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


if __name__ == "__main__":
    end(main())

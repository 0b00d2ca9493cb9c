"""The processes of trials: an interrupt ends those that run, and none of them outlives the process that started it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from paddle_cluster.localcluster.pods import pause

TESTS = Path(__file__).parents[1]
END_BOUND = 20.0  # seconds for a trial to end its job after SIGTERM
INTERRUPTED = 130  # exit status after Ctrl-C or SIGTERM
TrialT = TypeVar("TrialT")
ReportT = TypeVar("ReportT")


class StoppedError(Exception):
    """No other trial begins, because the run was interrupted."""


class TrialProcesses:
    """Starts the processes of trials. Use it as a context manager: an exception in the block ends those that run.

    Each process has a pipe as its standard input. The kernel closes the pipe when this process ends, even by SIGKILL,
    and `end_with_runner` then ends the trial. Each process has its own session, so that a Ctrl-C reaches only this
    process, which ends the trials in order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, command: Sequence[str], log: Path, bound: float) -> int:
        """Run a trial and return its exit status; end the trial after `bound` seconds.

        Raises: StoppedError: the run was interrupted.
        """
        with log.open("wb") as output, self._lock:
            if self._is_stopped:
                raise StoppedError
            process = subprocess.Popen(
                command, cwd=TESTS, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
            self._running.add(process)
        with process:
            try:
                process.wait(bound)
            except subprocess.TimeoutExpired:
                end_process(process)
            except BaseException:
                end_process(process)
                raise
            finally:
                with self._lock:
                    self._running.discard(process)
        if self._is_stopped:
            raise StoppedError
        return process.returncode

    def run_trial(self, module: str, folder: Path, spec: Mapping[str, Any], before: Sequence[str], bound: float) -> str:
        """Run the trial of a spec in a new folder; return why there is no result.json, or "" if it is there.

        Args: before: commands that run another command, in a network namespace for example.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        place = folder / "spec.json"
        place.write_text(json.dumps({**spec, "directory": str(folder)}))
        status = self.run([*before, sys.executable, "-m", module, str(place)], folder / "trial.log", bound)
        is_there = status == 0 and (folder / "result.json").exists()
        return "" if is_there else f"the trial's process ended with {status}; see {folder / 'trial.log'}"

    def stop(self) -> None:
        """End the trials that run, and let no other trial begin."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            end_process(process)

    def __enter__(self) -> TrialProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stop()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a process, and SIGKILL if it does not end."""
    process.terminate()
    try:
        process.wait(END_BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_side_by_side(
    run: Callable[[TrialT], ReportT],
    trials: Iterable[TrialT],
    jobs: int,
    processes: TrialProcesses,
    hear: Callable[[ReportT], None],
) -> None:
    """Run all trials, some at the same time, and call `hear` with each report as soon as its trial has ended."""
    with ThreadPoolExecutor(jobs) as pool, processes:
        for done in as_completed([pool.submit(run, trial) for trial in trials]):
            hear(done.result())


def run_and_show(
    given: Path | None, seed: int, run: Callable[[Path, list[ReportT]], None], show: Callable[[list[ReportT]], str]
) -> int:
    """Call `run` with a directory and a list for the reports, print what `show` makes of them; return the exit status.

    Args: given: the directory; without it, a new one is made, and removed if no trial has failed.
    """
    directory = (given or Path(tempfile.mkdtemp(prefix="chaos-"))).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    reports: list[Any] = []
    try:
        run(directory, reports)
    except KeyboardInterrupt:
        if given is None and not any(report.faults for report in reports):
            shutil.rmtree(directory, ignore_errors=True)
        raise
    print(f"\n{show(reports)}")
    failed = sorted(report.trial.name for report in reports if report.faults)
    print(f"\n{len(reports) - len(failed)} of {len(reports)} trials passed in {time.monotonic() - began:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)} of seed {seed}; their logs: {directory}", file=sys.stderr)
    elif given is None:
        shutil.rmtree(directory, ignore_errors=True)
    return int(bool(failed))


def run_until_interrupted(main: Callable[[], int]) -> int:
    """Call a main function and return its exit status; Ctrl-C and SIGTERM end it, also in a shell's background."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def end_with_runner() -> None:
    """End this process by SystemExit after SIGTERM, and when the process that has started it has died."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the job ends once, in order
        raise SystemExit(143)

    def watch() -> None:
        while os.read(0, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=watch, name="end with the runner", daemon=True).start()


def supervised(command: Sequence[str]) -> list[str]:
    """Return the command that runs another command, whose processes all end when its standard input, a pipe, closes."""
    return [sys.executable, "-I", "-S", pause.__file__, *command]

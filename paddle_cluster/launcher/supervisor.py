"""Run the pserver and the trainer of this pod during one attempt, from their start to their end."""

from __future__ import annotations

import itertools
import math
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError, StoppedError
from paddle_base.runtime.health.places import LAUNCHER, find_owner, mark_place
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.cluster.waiting import REPEAT_PERIOD_S
from paddle_cluster.launcher.command_lines import ProgramCommand, is_local, save_dir_of
from paddle_cluster.launcher.control.launcher import Launcher
from paddle_cluster.launcher.control.watch import WATCH_PERIOD_S, AttemptWatch
from paddle_cluster.launcher.entry import EntryCommand
from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.programs.process import (
    Program,
    copy_output,
    exit_code_of,
    pidfds,
    wait_for_any,
)
from paddle_cluster.launcher.programs.progress_lines import ProgressLines
from paddle_cluster.launcher.programs.shell import ShellProgram
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import say
from paddle_cluster.launcher.volume import volume_errors, write_atomically

PROBE_PERIOD_S = 10.0  # seconds for all pservers to answer, after which the launcher checks the set of pods again
NOTICE_S = 5.0  # seconds for a trainer to detect that its pserver has failed
FAILED_STOP_S = 20.0  # maximum seconds that a program has to end after a failed attempt, when it has nothing to save
ENDED_STOP_S = 0.5  # seconds for the trainer to end if another pod ended the attempt; an interrupted save is not used
END_PERIOD_S = 0.5  # seconds between two reads of job.json to detect the end of the job


def prepare_node_dir(config: LauncherConfig, trainer_id: int, attempt: int) -> Path:
    """Create output/node_<id>, check that it is writable, and rename the files of earlier attempts with a suffix."""
    node = config.output / f"node_{trainer_id}"
    with volume_errors(node):
        node.mkdir(parents=True, exist_ok=True)
        set_logs_aside(node, attempt)
        number = config.layout.pods
        # the logs of absent trainers are renamed, too, because these logs do not belong to this attempt
        while trainer_id == 0 and (beyond := config.output / f"node_{number}").exists():
            set_logs_aside(beyond, attempt)
            number += 1
        write_atomically(node / ".writable", "")
        (node / ".writable").unlink(missing_ok=True)
    return node


def set_logs_aside(node: Path, attempt: int) -> None:
    """Append the number of the previous attempt to the names of that attempt's files. Raises: OSError."""
    for name in ("train.log", "train.jsonl", "server.log", "server.jsonl", "error.json"):
        if (node / name).exists():
            numbers = itertools.count(max(1, attempt - 1))
            kept = next(path for path in (node / f"{name}.{k}" for k in numbers) if not path.exists())
            (node / name).rename(kept)


def name_place(config: LauncherConfig) -> str:
    """Return the name of the place of a launcher: its pod, in a job."""
    return f"{config.job_namespace}/{config.job_name}/{config.pod_name}"


def check_place(config: LauncherConfig, environ: Mapping[str, str]) -> None:
    """Check that no program of a running launcher of this pod has started this one.

    Raises: ConfigError: the pod has a launcher.
    """
    if pid := find_owner(environ.get(LAUNCHER, ""), name_place(config)):
        raise ConfigError(
            f"the launcher of pod {config.pod_name} is process {pid}, and one of its programs has started this one: a "
            f"pod has one launcher; unset {LAUNCHER}, and set POD_NAME and POD_IP to start one for another pod"
        )


def attempt_environ(config: LauncherConfig, record: JobRecord, passed: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that describe an attempt to its programs."""
    environ = {"PADDLE_JOB_NAME": config.job_name, "PADDLE_ATTEMPT": record.name, "PADDLE_OUTPUT": str(config.output)}
    environ[LAUNCHER] = mark_place(name_place(config))
    if record.absent:  # the trainer stores in each checkpoint which trainers were absent when the samples were divided
        environ["PADDLE_ABSENT"] = ",".join(str(one["index"]) for one in record.absent)
    # if the save that the launcher chose is damaged, a program renames it; a save that a flag names is never renamed
    if record.origin:
        origin = f"state/{record.checkpoint}" if record.checkpoint else record.origin
        environ["PADDLE_CHOSEN_SAVE"] = str(save_dir_of(config, passed) / origin)
    if config.entry:
        environ["PADDLE_CHECKPOINT"] = environ.get("PADDLE_CHOSEN_SAVE", "")
    return environ


class Supervisor:
    """Run the programs of one attempt; the end of the `with` block ends all programs, which frees their ports.

    The argument `pserver` of the methods is None in a pod that runs no pserver.
    """

    def __init__(self, launcher: Launcher, config: LauncherConfig, environ: Mapping[str, str], node: Path) -> None:
        """Args: config: that of the attempt. environ: the environment of the programs. node: directory of the logs."""
        self.config, self.environ, self.node = config, environ, node
        self.stop, self.health, self.forks = launcher.stop, launcher.health, launcher.forks
        self.programs: list[Program] = []

    def __enter__(self) -> Supervisor:
        self.health.programs = self.programs
        return self

    def __exit__(self, *_: object) -> None:
        self.health.programs, self.health.main = [], "trainer"
        for program in reversed(self.programs):
            program.stop(self.failed_stop_s)
            program.close()

    @property
    def failed_stop_s(self) -> float:
        """Maximum seconds for the end of a program that has nothing to save."""
        return min(self.config.stop_timeout, FAILED_STOP_S)

    def start(self, name: str, command: ProgramCommand, log: str, *, copied: bool = False) -> Program:
        """Start a program that logs to output/node_<id>/<log>."""
        kind = ShellProgram if isinstance(command, EntryCommand) else Program
        environ = {**self.environ, **command.variables}
        with volume_errors(self.node / log):
            program = kind(
                name,
                command.argv,
                environ,
                self.node / log,
                copied=copied,
                metrics_port=command.metrics_port,
                forks=self.forks,
            )
        if isinstance(program, ShellProgram) and isinstance(command, EntryCommand) and copied:
            program.progress = ProgressLines(command.follower, self.environ)
        self.programs.append(program)
        return program

    def wait_for_pservers(
        self, pserver: Program | None, probe: ProgramCommand, watch: AttemptWatch
    ) -> AttemptResult | None:
        """Run the probe until every pserver of the job answers. Return the attempt's result if the wait fails, or None.

        Args: probe: the probe's command without the flag --timeout. watch: detects that this attempt cannot continue.
        """
        deadline = time.monotonic() + self.config.start_timeout
        while True:
            timeout_s = max(1, math.ceil(min(deadline - time.monotonic(), PROBE_PERIOD_S)))
            status = self._probe(pserver, probe.having(timeout=timeout_s).argv, watch)
            if self.stop.requested:
                return AttemptResult(StoppedError.exit_code, "launcher", "stopped during the wait for the pservers")
            if pserver and pserver.process.poll() is not None:
                return pserver.find_result()
            if status == 0:
                return None
            with self.stop.at_once():
                obstacle = watch.find_obstacle()
            if obstacle:
                return obstacle
            if status != PeerUnreachableError.exit_code or time.monotonic() >= deadline:
                return AttemptResult(
                    status, "launcher", "not every pserver of the job answers; the lines above name the pservers"
                )

    def _probe(self, pserver: Program | None, argv: Sequence[str], watch: AttemptWatch) -> int:
        """Run one probe and return its exit status, or 69 if the wait ends early.

        The wait ends early if a signal arrives, or if the attempt or the pserver ends.
        """
        deadline = time.monotonic() + PROBE_PERIOD_S + REPEAT_PERIOD_S
        forked = self.forks.start(argv, self.environ, sys.stdout.fileno(), sys.stderr.fileno()) if self.forks else None
        probe = forked or subprocess.Popen(argv, env=dict(self.environ), stdin=subprocess.DEVNULL)
        pidfd = os.pidfd_open(probe.pid)
        try:
            while probe.poll() is None and (patience_s := deadline - time.monotonic()) > 0:
                wait_for_any(patience_s, pidfd, *pidfds(pserver), self.stop.wakeup, watch.wakeup)
                if self.stop.requested or (pserver and pserver.process.poll() is not None) or watch.find_end():
                    break
            status = probe.poll()
            return PeerUnreachableError.exit_code if status is None else exit_code_of(status)
        finally:
            os.close(pidfd)
            probe.kill()
            probe.wait()

    def run_pserver(self, pserver: Program, watch: AttemptWatch) -> AttemptResult:
        """Wait for the end of the pserver in a pod without a trainer, and return how it ended.

        The pserver ends with status 0 after all trainers have left. A program of ENTRY may still run then, or never use
        the pserver, so the end of the job ends the wait. After a signal, the pserver continues to run until the
        trainers have saved.
        Args: watch: detects that the attempt has ended in another pod.
        """
        self.health.main = "pserver"
        while not self.stop.requested:
            running = pidfds(pserver) if pserver.process.poll() is None else []
            if not running and not (self.config.entry and pserver.status == 0):
                break
            wait_for_any(WATCH_PERIOD_S, *running, self.stop.wakeup, watch.wakeup)
            if end := watch.find_end() or watch.find_lost_server():
                return end
            if self.config.entry and watch.is_done():
                return AttemptResult(0)
        if self.stop.requested:
            say(f"{self.stop.requested}: the pserver serves until the trainers have saved")
            wait_for_any(self.config.stop_timeout, pserver.pidfd)
            return AttemptResult(StoppedError.exit_code, "launcher", f"stopped by {self.stop.requested}")
        return pserver.find_result() if pserver.status else AttemptResult(0)

    def run_trainer(self, pserver: Program | None, command: ProgramCommand, watch: AttemptWatch) -> AttemptResult:
        """Run the trainer, copy its output, and return how trainer and pserver ended.

        Args: watch: detects that the attempt has ended in another pod; the trainer is then stopped at once. Until a
            trainer has connected to the pservers, only the launcher of its pod can detect its failure.
        """
        trainer = self.start("trainer", command, "train.log", copied=True)
        stdout = trainer.output
        first: AttemptResult | None = None
        deadline, is_asked, grace_s = math.inf, False, self.failed_stop_s
        look_at = time.monotonic() + WATCH_PERIOD_S
        with selectors.DefaultSelector() as selector:
            for source in (stdout, trainer.pidfd, *pidfds(pserver), self.stop.wakeup, watch.wakeup):
                selector.register(source, selectors.EVENT_READ)
            while trainer.process.poll() is None:
                events = selector.select(max(0.0, min(deadline, look_at) - time.monotonic()))
                ready = {key.fd for key, _ in events}
                if stdout in ready and not copy_output(trainer):
                    selector.unregister(stdout)
                if self.stop.wakeup in ready:
                    say(f"{self.stop.requested}: the trainer gets SIGTERM")
                    selector.unregister(self.stop.wakeup)
                    deadline, is_asked, grace_s = time.monotonic(), False, self.config.stop_timeout
                if pserver and pserver.pidfd in ready:
                    selector.unregister(pserver.pidfd)
                    pserver.process.wait()
                    # status 0 means that all trainers have left; after another status, the trainer detects the failure
                    first = pserver.find_result() if pserver.status else None
                    is_cause = bool(first and watch.tell(first))
                    notice_s = ENDED_STOP_S if is_cause else NOTICE_S
                    patience_s = min(notice_s, self.config.stop_timeout) if first else self.config.stop_timeout
                    if first or not self.config.entry:  # a program of ENTRY may have more to do than to train
                        deadline = min(deadline, time.monotonic() + patience_s)
                if watch.wakeup in ready or time.monotonic() >= look_at:
                    look_at = time.monotonic() + WATCH_PERIOD_S
                    end = watch.find_end()
                    if end and deadline == math.inf:
                        first, deadline, grace_s = end, time.monotonic(), min(ENDED_STOP_S, self.failed_stop_s)
                if time.monotonic() >= deadline and is_asked:
                    trainer.stop(0.0)
                elif time.monotonic() >= deadline:
                    trainer.terminate()
                    deadline, is_asked = time.monotonic() + grace_s, True
            while copy_output(trainer):
                pass
        trainer.finish()
        return self._conclude(pserver, trainer, first, watch, is_alone=is_local(command.flags))

    def _conclude(
        self,
        pserver: Program | None,
        trainer: Program,
        first: AttemptResult | None,
        watch: AttemptWatch,
        *,
        is_alone: bool,
    ) -> AttemptResult:
        status = trainer.status
        if not status and not is_alone and not self.stop.requested:
            if pserver and not self.config.entry:
                wait_for_any(self.config.goodbye_timeout, pserver.pidfd, self.stop.wakeup)
            else:
                first = first or self._wait_for_the_end(watch)
        if self.stop.requested:
            code = status if status in NEVER_RETRY else StoppedError.exit_code
            return AttemptResult(code, "launcher", f"stopped by {self.stop.requested}")
        # if the trainer only lost its peers, or if the launcher stopped it, `first` contains the first failure
        if first and (status <= 0 or status in (PeerUnreachableError.exit_code, LostPeerError.exit_code, 143)):
            return first
        if status:
            return trainer.find_result()
        if is_alone or not pserver or self.config.entry:
            return AttemptResult(0)
        if pserver.process.poll() is None:
            message = (
                "this pod's trainer has finished, but other trainers did not finish within "
                f"{self.config.goodbye_timeout:g} s"
            )
            return AttemptResult(LostPeerError.exit_code, "pserver", f"{message} (GOODBYE_TIMEOUT); see {pserver.log}")
        return pserver.find_result() if pserver.status else AttemptResult(0)

    def _wait_for_the_end(self, watch: AttemptWatch) -> AttemptResult | None:
        """Wait in a pod without a pserver, or with a program of ENTRY, until trainer 0 records the end of the job.

        A pod that ended earlier could not take part in another attempt, because a Job starts no new pod for an index
        that has succeeded.
        Returns: None at the end of the job; otherwise a result that says why another attempt is needed.
        """
        deadline = time.monotonic() + self.config.goodbye_timeout
        say("this pod's trainer has finished; waiting for the other trainers")
        while time.monotonic() < deadline and not self.stop.requested:
            watch.tell_finished()
            if watch.is_done():
                return None
            end = watch.find_end()
            if end:
                return end
            wait_for_any(END_PERIOD_S, self.stop.wakeup, watch.wakeup)
        message = (
            f"this pod's trainer has finished, but the job did not finish within {self.config.goodbye_timeout:g} s"
        )
        return AttemptResult(LostPeerError.exit_code, "launcher", f"{message} (GOODBYE_TIMEOUT)")

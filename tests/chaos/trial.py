"""`python -m chaos.trial SPEC`: run one trial in this process and, if possible, in a separate network.

SPEC is a JSON file: {trial, directory, data, reference, isolated}; the result goes to <directory>/result.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import harms, network, verdict
from chaos.plan import PASSES, PODS, Trial
from chaos.processes import end_with_runner
from chaos.progress import Progress, is_moment
from chaos.reports import SavedReport
from paddle_cluster.localcluster import Cluster, Result, WaitError, load_job
from paddle_cluster.localcluster.addresses import PREFIXES

ROOT = Path(__file__).parents[2]
JOB = "paddle-cluster-job"
BOUND = 60.0  # maximum seconds from the harm to the Job's end
MOMENT_BOUND = 40.0  # maximum seconds from the Job's start to the moment
STALL_BOUND = 20.0  # seconds without a batch, from which on the two bounds apply; a busy machine is only slow
HARD_BOUND = 240.0  # maximum seconds from the Job's start to its end, also on a busy machine
NOTICE_BOUND = 15.0  # seconds after which the peers must have noticed the harm
LASTING = {"short": 1.2, "long": 5.0}  # seconds of a stop or cut; the peer timeout is 3
LOOK_INTERVAL = 0.001  # seconds, until the moment has come
WATCH_INTERVAL = 0.02  # seconds, after the moment
STATE_PERIOD = 25  # batches between two states during a pass
ENVIRONMENT = {
    "NUM_PASSES": str(PASSES),
    "LOG_PERIOD": "1",
    "TRAIN_CONFIG": "chaos_config.py",
    "PADDLE_PEER_TIMEOUT": "3",
    "START_TIMEOUT": "40",
    "STOP_TIMEOUT": "4",
    "GOODBYE_TIMEOUT": "40",
    "PYTHONPATH": str(ROOT),
}
# the variables of tests/sanitize, without which a program cannot load the compiled kernels that it has made
SANITIZED = ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "PYTHONMALLOC")


@dataclass
class Report(SavedReport):
    """The result of a trial. recovered: seconds from the harm to the first batch of a new attempt, or to the end."""

    trial: Trial
    directory: str
    struck: bool = False
    missed: str = ""
    complete: bool = False
    equal: bool | None = None
    attempts: int = 0
    pods: int = 0
    recovered: float | None = None
    seconds: float = 0.0
    cost: float | None = None
    faults: list[str] = field(default_factory=list)


def read_report(directory: Path) -> Report:
    """Return the report that a trial's process has written."""
    content: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return Report(**{**content, "trial": Trial(**content["trial"])})


def make_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the pods; `environ` is the environment of the trial's process."""
    return ENVIRONMENT | {name: environ[name] for name in SANITIZED if name in environ}


def make_cluster(trial: Trial, directory: Path, isolated: bool) -> Cluster:
    """Return a cluster with the job of k8s/job.yaml and the config of the trials, ready to start."""
    job = load_job(ROOT / "k8s" / "job.yaml")
    flags = (f"--config_args=mode={trial.mode}", f"--checkpoint_period_by_batches={STATE_PERIOD}")
    job = dataclasses.replace(job, container=dataclasses.replace(job.container, args=flags))
    own = {"entrypoint": ROOT / "start.sh", "networks": PREFIXES}
    if isolated:
        network.make_bridge()
        own = {"entrypoint": Path(__file__).with_name("pod_network.sh"), "networks": (network.PREFIX,)}
    return Cluster(
        job,
        volumes={"mfs": directory / "volume"},
        logs=directory / "pods",
        env=make_environment(os.environ),
        **own,
    )


class Run:
    """One trial from the Job's start to the verdict."""

    def __init__(self, trial: Trial, directory: Path, reference: Path | None, isolated: bool) -> None:
        self.trial, self.directory, self.reference = trial, directory, reference
        self.output = directory / "volume" / JOB / "output"
        self.progress = Progress(self.output)
        self.report = Report(trial, str(directory))
        self.cluster = make_cluster(trial, directory, isolated)
        self._attempt: object = None
        self._began = self._advanced = time.monotonic()

    def run(self) -> Report:
        """Run the trial and return its report; faults are in the report and not raised."""
        result = None
        self._began = self._advanced = time.monotonic()
        with self.cluster:
            try:
                if self.trial.is_disturbed:
                    self._await_moment()
                    result = self._disturb()
                else:
                    result = self.cluster.wait(HARD_BOUND)
            except harms.MissedError as missed:
                self.report.missed = str(missed)
            except WaitError as error:
                self.report.faults.append(str(error).splitlines()[0])
        self.report.seconds = time.monotonic() - self._began
        if result is not None:
            self._judge(result)
        return self.report

    # ----- before and after the harm -----

    def _await_moment(self) -> None:
        """Wait until the moment has come and its jitter has passed."""
        deadline = time.monotonic() + MOMENT_BOUND
        while not self._has_come():
            if time.monotonic() > deadline and self._has_stalled():
                raise WaitError(f"the moment did not come within {MOMENT_BOUND:g} s: {self.trial}")
            if self._ended() is not None:
                raise harms.MissedError("the job ended before the moment")
            time.sleep(WATCH_INTERVAL if self.trial.moment == "start" else LOOK_INTERVAL)
        time.sleep(self.trial.jitter)

    def _has_come(self) -> bool:
        if self.trial.moment == "start":
            return harms.is_running(self.cluster, self.trial)
        self._look()
        return is_moment(self.trial, self.progress)

    def _look(self) -> None:
        """Update the progress of the job, and record the time if it has advanced."""
        before = (self.progress.logs, self.progress.passes, self.progress.batch)
        self.progress.look()
        if before != (self.progress.logs, self.progress.passes, self.progress.batch):
            self._advanced = time.monotonic()

    def _has_stalled(self) -> bool:
        """Whether the job has trained nothing for STALL_BOUND, or runs for more than HARD_BOUND."""
        now = time.monotonic()
        return now - self._advanced > STALL_BOUND or now - self._began > HARD_BOUND

    def _disturb(self) -> Result:
        """Do the harm, end it when its time has come, and wait for the Job's end."""
        self._look()
        logs = self.progress.logs
        heal = harms.strike(self.cluster, self.trial)
        self.report.struck = True
        struck = time.monotonic()
        while True:
            now = time.monotonic() - struck
            if heal is not None and self._is_over(now):
                heal()
                heal = None
            self._look()
            if self.report.recovered is None and self.progress.logs > logs and self.progress.has_batches:
                self.report.recovered = now
            self._watch_record()
            result = self._ended()
            if result is not None:
                if self.report.recovered is None and self.trial.harm not in ("stop", "cut"):
                    self.report.recovered = now
                return result
            if now > BOUND and self._has_stalled():
                raise WaitError(f"the Job has not ended {now:.0f} s after the harm, and trains no more")
            time.sleep(WATCH_INTERVAL)

    def _is_over(self, now: float) -> bool:
        """Whether a stop or cut has lasted long enough."""
        if self.trial.lasts in LASTING:
            return now > LASTING[self.trial.lasts]
        if not verdict.check_named(self.trial, self._addresses(), self._others_logs()):
            return True
        if verdict.is_finished(verdict.read_job(self.output)):
            return True  # the harm came after the last message of the program, so no peer had to notice it
        if now > NOTICE_BOUND:
            self.report.faults.append(f"nobody noticed within {NOTICE_BOUND:g} s")
            return True
        return False

    def _ended(self) -> Result | None:
        with contextlib.suppress(WaitError):
            return self.cluster.result()
        return None

    def _watch_record(self) -> None:
        record = verdict.read_job(self.output)
        if record.get("attempt") != self._attempt:
            self._attempt = record.get("attempt")
            self.report.faults += verdict.check_named_state(self.output, record)

    def _addresses(self) -> dict[int, str]:
        """Return the address of each index's first pod."""
        return {state.index: state.ip for state in reversed(self.cluster.pods()) if state.index is not None}

    def _others_logs(self) -> list[Path]:
        own = [state.name for state in self.cluster.pods() if state.index == self.trial.pod]
        pods = [log for log in self.cluster.logs.glob("*.log") if log.stem not in own]
        servers = [log for log in self.output.glob("node_*/*.log*") if log.parent.name != f"node_{self.trial.pod}"]
        return pods + servers

    # ----- after the end -----

    def _judge(self, result: Result) -> None:
        report, trial = self.report, self.trial
        report.complete = result.outcome.is_complete
        report.pods = len(result.pods)
        attempt = verdict.read_job(self.output).get("attempt")
        report.attempts = attempt if isinstance(attempt, int) else 0
        report.cost = verdict.last_test_cost(self.output / "node_0" / "train.log")
        if not report.complete:
            report.faults.append(f"the Job failed: {result.outcome.reason}: {result.outcome.message}")
            return
        if self.reference is None:
            return
        reference = verdict.pass_directories(self.reference / "volume" / JOB / "output")
        passes = verdict.pass_directories(self.output)
        report.faults += verdict.check_whole(passes, reference)
        if trial.mode == "sync":
            differences = verdict.compare_passes(passes, reference)
            state = verdict.last_state(self.output)
            if state:  # a harm between the last pass and its state may leave no state, which nobody needs then
                theirs = verdict.last_state(self.reference / "volume" / JOB / "output")
                differences += verdict.compare_passes(state, theirs)
            report.equal = not differences
            report.faults += differences
        else:
            cost = read_report(self.reference).cost
            report.faults += verdict.compare_costs(report.cost, cost or 0.0)
        self._judge_launchers(result)
        failed = [pod.name for pod in result.pods if pod.phase == "Failed" or pod.deleted]
        report.faults += verdict.check_pods(trial, [pod.name for pod in result.pods], failed, PODS)
        if self._must_be_named():
            report.faults += verdict.check_named(trial, self._addresses(), self._others_logs())
        if trial.is_unnoticed and report.attempts > 1:
            report.faults.append(f"{LASTING[trial.lasts]:g} s of {trial.harm} cost an attempt")

    def _judge_launchers(self, result: Result) -> None:
        """Add what is wrong with job.json and with the outputs of the pods."""
        trial, record = self.trial, verdict.read_job(self.output)
        outputs = {index: [pod.output for pod in result.pods if pod.index == index] for index in range(PODS)}
        self.report.faults += [
            *verdict.check_record(trial, record),
            *verdict.check_origin(trial, record),
            *verdict.check_codes(trial, [(pod.index, pod.exit_code) for pod in result.pods]),
            *verdict.check_identities(outputs),
            *verdict.check_told(trial, record, outputs),
            *verdict.check_staged(trial, outputs),
            *verdict.check_old_logs(trial, record, self.output),
        ]

    def _must_be_named(self) -> bool:
        """Whether the peers were connected to the harmed program, still needed it, and had to notice the harm."""
        if self.trial.is_unnoticed:
            return False
        return self.trial.moment in ("first-batch", "mid-pass") or (
            self.trial.moment in ("pass-end", "saving") and self.report.attempts > 1
        )


def main(spec: Path) -> None:
    """Run the trial of a file, and write its report."""
    content = json.loads(spec.read_text())
    directory = Path(content["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    volume = directory / "volume"
    shutil.copytree(content["data"], volume / JOB)
    shutil.copy(Path(__file__).with_name("chaos_config.py"), volume / JOB / "digits")
    reference = Path(content["reference"]) if content["reference"] else None
    run = Run(Trial(**content["trial"]), directory, reference, content["isolated"])

    end_with_runner()
    run.run().save()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`python -m chaos.tasks.trial SPEC`: run one trial in this process and, if possible, in a separate network.

SPEC is a JSON file: {trial, directory, data, reference, isolated}; the result goes to <directory>/result.json.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import network
from chaos.processes import end_with_runner
from chaos.reports import SavedReport
from chaos.tasks import verdict
from chaos.tasks.job import ElasticJob, read
from chaos.tasks.model import measure_error
from chaos.tasks.plan import (
    FILES,
    LAST_SCALE,
    LASTING,
    NOBODY_S,
    PASSES,
    SCALES,
    TRAINERS,
    ElasticTrial,
    Strike,
)
from paddle_cluster.localcluster.deployment import DeployedPod

STALL_BOUND = 60.0  # seconds without a file read and without an end of a program, after which the job counts as hanging
HARD_BOUND = 240.0  # maximum seconds of a job, also on a busy machine
END_BOUND = 30.0  # maximum seconds from the job's end until the last trainer has heard of it
LOOK_S = 0.01


@dataclass
class ElasticReport(SavedReport):
    """The result of a trial. done: the harms, with the seconds since its start."""

    trial: ElasticTrial
    directory: str
    seconds: float = 0.0
    done: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    error: float | None = None
    trained: int = 0
    faults: list[str] = field(default_factory=list)


def read_trial(content: dict[str, Any]) -> ElasticTrial:
    """Return the trial that `asdict` has turned into this object."""
    return ElasticTrial(**{**content, "strikes": tuple(Strike(**one) for one in content["strikes"])})


def read_elastic_report(directory: Path) -> ElasticReport:
    """Return the report that a trial's process has written."""
    content: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return ElasticReport(**{**content, "trial": read_trial(content["trial"])})


class Course:
    """Runs a job from its start to its end, and harms it."""

    def __init__(self, job: ElasticJob, report: ElasticReport) -> None:
        self._job, self._report = job, report
        self._began = self._advanced = time.monotonic()
        self._read = -1
        self._waiting: list[tuple[float, float, Callable[[], bool]]] = [
            (strike.share, strike.delay, self._striker(strike)) for strike in report.trial.strikes
        ]
        if report.trial.is_scaled:
            self._waiting += [(share, 0.0, self._scaler(count)) for share, count in SCALES]
        self._due: list[tuple[float, Callable[[], bool]]] = []
        self._frozen: set[int] = set()  # trainers that stay frozen

    def run(self) -> None:
        """Run the job until every program has ended, or until the job hangs."""
        self._began = self._advanced = time.monotonic()
        self._job.start(TRAINERS)
        while not self._job.is_over():
            now = time.monotonic()
            share = self._look(now)
            self._due += [(now + delay, act) for at, delay, act in self._waiting if share >= at]
            self._waiting = [one for one in self._waiting if share < one[0]]
            self._act(now)
            if now - self._advanced > STALL_BOUND or now - self._began > HARD_BOUND:
                self._report.faults.append(
                    f"the job has not ended after {now - self._began:.0f} s; {share:.0%} are read"
                )
                break
            time.sleep(LOOK_S)
        self._end_trainers()
        self._report.seconds = time.monotonic() - self._began
        self._report.missed = [str(self._report.trial)] if self._waiting else []

    def _act(self, now: float) -> None:
        """Do the strikes that are due; a strike whose target does not run yet is tried again later."""
        due, self._due = self._due, []
        for when, act in due:
            if now < when or not act():
                self._due.append((when, act))

    def _look(self, now: float) -> float:
        """Return the fraction of the job's tasks that have been read."""
        tasks = self._job.ledger.read_bytes().count(b"\n")
        ends = sum(len(pod.ends) for kept in self._job.deployments.values() for pod in kept.pods())
        if tasks + ends != self._read:
            self._read, self._advanced = tasks + ends, now
        return tasks / (FILES * PASSES)

    def _end_trainers(self) -> None:
        """Wait for the trainers that have not heard yet that the job is over, except those that stay frozen."""
        until = time.monotonic() + END_BOUND
        while self._left() and time.monotonic() < until:
            self._act(time.monotonic())
            time.sleep(LOOK_S)
        self._report.faults += [f"{pod.name} has not ended with its job" for pod in self._left()]

    def _left(self) -> list[DeployedPod]:
        pods = self._job.deployments["trainer"].pods()
        return [pod for pod in pods if not pod.is_over and pod.number not in self._frozen]

    # ----- harms -----

    def _scaler(self, count: int) -> Callable[[], bool]:
        def scale() -> bool:
            self._say(f"{count} trainers")
            self._job.deployments["trainer"].scale(count)
            if count == 0:
                self._due.append((time.monotonic() + NOBODY_S, self._scaler(LAST_SCALE)))
            return True

        return scale

    def _striker(self, strike: Strike) -> Callable[[], bool]:
        return lambda: self._strike(strike)

    def _strike(self, strike: Strike) -> bool:
        """Do a harm; return whether its target exists."""
        kind = "master" if strike.role == "standby" else strike.role
        found = self._find(strike)
        if not found:
            return False
        pod = found[strike.number % len(found)] if strike.role in ("pserver", "trainer") else found[0]
        kept = self._job.deployments[kind]
        if strike.harm == "cut":
            heal = self._job.cut(pod)
            if heal is None:
                return False
            self._later(strike, heal)
        elif strike.harm == "freeze":
            thaw = self._job.freeze(kind, pod)
            if strike.lasts == "never":
                self._frozen.add(pod.number)
            else:
                self._later(strike, thaw)
        elif strike.harm == "kill" and strike.is_pod:
            self._job.lose(kind, pod)
        elif strike.harm == "kill":
            kept.kill(pod.number)
        elif strike.is_pod:
            kept.delete(pod.number)
        else:
            kept.send(pod.number, signal.SIGTERM)
        self._say(f"{strike} ({pod.name})")
        return True

    def _find(self, strike: Strike) -> list[DeployedPod]:
        if strike.role in ("master", "standby"):
            return self._job.masters(strike.role == "master")
        return self._job.pods(strike.role)

    def _later(self, strike: Strike, end: Callable[[], None]) -> None:
        def act() -> bool:
            self._say(f"{strike.harm} of {strike.role} is over")
            end()
            return True

        self._due.append((time.monotonic() + LASTING[strike.lasts], act))

    def _say(self, what: str) -> None:
        self._report.done.append(f"{time.monotonic() - self._began:.2f} s: {what}")


def judge(job: ElasticJob, report: ElasticReport, reference: float | None) -> None:
    """Add the faults of a job that has ended to the report; the fault of a job that hangs is in it already."""
    if report.faults:
        return
    logs = {log.name: read(log) for log in sorted(job.logs.iterdir())}
    account = verdict.read_account(job.output)
    report.trained = verdict.count_trained(logs)
    sizes = verdict.count_lines(job.directory / "work" / "data").values()
    samples = sum(sizes)
    report.faults += verdict.check_ends({name: kept.pods() for name, kept in job.deployments.items()})
    report.faults += verdict.check_logs(logs)
    report.faults += verdict.check_account(account, FILES, PASSES, samples)
    report.faults += verdict.check_samples(account, report.trained, samples, max(sizes))
    report.faults += verdict.check_ledger(read(job.ledger), PASSES, FILES)
    report.error = measure_error(job.directory / "work", job.output / f"pass-{PASSES - 1:05d}", report.trial)
    report.faults += verdict.check_error(report.error, reference)


def main(spec: Path) -> None:
    """Run the trial of a file, and write its report."""
    content = json.loads(spec.read_text())
    trial, directory = read_trial(content["trial"]), Path(content["directory"])
    if content["isolated"]:
        network.make_bridge()

    end_with_runner()
    report = ElasticReport(trial, str(directory))
    with ElasticJob(trial, directory, Path(content["data"]), content["isolated"]) as job:
        Course(job, report).run()
    judge(job, report, content["reference"])
    report.save()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

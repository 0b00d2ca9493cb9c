"""`python -m chaos.allreduce.trial SPEC`: run one trial in this process and, if possible, in a separate network.

SPEC is a JSON file: {trial, directory, isolated}; the result goes to <directory>/result.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import network
from chaos.allreduce import verdict
from chaos.allreduce.course import AllReduceCourse
from chaos.allreduce.job import AllReduceJob
from chaos.allreduce.plan import BATCH, EPOCHS, SAMPLES, AllReduceTrial, Blow
from chaos.processes import end_with_runner
from chaos.reports import SavedReport


@dataclass
class AllReduceReport(SavedReport):
    """The result of a trial.

    done: the harms, with the seconds since its start.  missed: blows that found no target.  pause: the longest time
    without a new commit, in seconds.
    """

    trial: AllReduceTrial
    directory: str
    seconds: float = 0.0
    pause: float = 0.0
    generations: int = 0
    done: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_allreduce_trial(content: dict[str, Any]) -> AllReduceTrial:
    """Return the trial that `asdict` has turned into this object."""
    blows = tuple(Blow(**one) for one in content["blows"])
    return AllReduceTrial(**{**content, "blows": blows, "slots": tuple(content["slots"])})


def read_allreduce_report(directory: Path) -> AllReduceReport:
    """Return the report that a trial's process has written."""
    content: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return AllReduceReport(**{**content, "trial": read_allreduce_trial(content["trial"])})


def judge(job: AllReduceJob, report: AllReduceReport, struck: Collection[str]) -> None:
    """Add the faults of a job that has ended to the report.

    Args: struck: hosts whose workers were harmed.
    """
    job.ledger.look()
    logs, workers = job.read_logs(), list(job.ledger.workers.values())
    steps = verdict.list_committed(workers)
    report.generations = len({one.generation for worker in workers for one in worker.commits})
    report.faults += verdict.check_ends({name: kept.pods() for name, kept in job.deployments.items()}, logs, struck)
    report.faults += verdict.check_logs(logs)
    report.faults += verdict.check_agreement(workers)
    report.faults += verdict.check_generations(workers)
    if not any("has not ended" in fault for fault in report.faults):
        report.faults += verdict.check_samples(steps, EPOCHS, SAMPLES, BATCH)
        report.faults += verdict.check_model(workers, steps, SAMPLES, is_torch=job.trial.is_torch)


def main(spec: Path) -> None:
    """Run the trial of a file, and write its report."""
    content = json.loads(spec.read_text())
    trial, directory = read_allreduce_trial(content["trial"]), Path(content["directory"])
    if content["isolated"]:
        network.make_bridge()

    end_with_runner()
    report = AllReduceReport(trial, str(directory))
    with AllReduceJob(trial, directory, content["isolated"]) as job:
        course = AllReduceCourse(job)
        course.run()
        report.seconds, report.pause = course.seconds, course.pause
        report.done, report.missed, report.faults = course.done, course.missed, course.faults
        judge(job, report, course.struck_hosts)
    report.save()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

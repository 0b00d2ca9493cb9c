"""Runs all-reduce trials, each in a separate process."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from chaos.allreduce.course import END_BOUND, HARD_BOUND
from chaos.allreduce.plan import AllReduceTrial
from chaos.allreduce.trial import AllReduceReport, read_allreduce_report
from chaos.processes import TrialProcesses

TRIAL_BOUND = HARD_BOUND + 2 * END_BOUND  # seconds after which the process of a trial is ended


def run_allreduce_trial(
    trial: AllReduceTrial, directory: Path, before: Sequence[str], isolated: bool, processes: TrialProcesses
) -> AllReduceReport:
    """Run a trial in a separate directory.

    Args: before: commands that run another command, in a network namespace for example.  isolated: whether there is
    such a namespace.
    """
    folder = directory / trial.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    spec = {"trial": asdict(trial), "directory": str(folder), "isolated": isolated}
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [*before, sys.executable, "-m", "chaos.allreduce.trial", str(folder / "spec.json")]
    status = processes.run(command, folder / "trial.log", TRIAL_BOUND)
    if status != 0 or not (folder / "result.json").exists():
        fault = f"the trial's process ended with {status}; see {folder / 'trial.log'}"
        return AllReduceReport(trial, str(folder), faults=[fault])
    return read_allreduce_report(folder)


def describe_allreduce(report: AllReduceReport) -> str:
    """Return the lines of output about a trial."""
    missed = f", not done: {'; '.join(report.missed)}" if report.missed else ""
    times = f"{report.seconds:.1f} s, {report.pause:.1f} s without a commit"
    text = f"{report.trial}; {report.generations} generations, {times}{missed}"
    if not report.faults:
        return f"passed  {text}"
    return f"FAILED  {text}\n" + "\n".join(f"        {fault}" for fault in [*report.faults, f"see {report.directory}"])

"""Runs all-reduce trials, each in a separate process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from chaos.allreduce.course import END_BOUND, HARD_BOUND, TORCH_FACTOR
from chaos.allreduce.plan import AllReduceTrial
from chaos.allreduce.trial import AllReduceReport, read_allreduce_report
from chaos.processes import TrialProcesses

TRIAL_BOUND = TORCH_FACTOR * HARD_BOUND + 2 * END_BOUND  # seconds after which the process of a trial is ended


def run_allreduce_trial(
    trial: AllReduceTrial, directory: Path, before: Sequence[str], isolated: bool, processes: TrialProcesses
) -> AllReduceReport:
    """Run a trial in a separate directory.

    Args: before: commands that run another command, in a network namespace for example.  isolated: whether there is
    such a namespace.
    """
    folder = directory / trial.name
    spec = {"trial": asdict(trial), "isolated": isolated}
    fault = processes.run_trial("chaos.allreduce.trial", folder, spec, before, TRIAL_BOUND)
    return AllReduceReport(trial, str(folder), faults=[fault]) if fault else read_allreduce_report(folder)


def describe_allreduce(report: AllReduceReport) -> str:
    """Return the lines of output about a trial."""
    missed = f", not done: {'; '.join(report.missed)}" if report.missed else ""
    times = f"{report.seconds:.1f} s, {report.pause:.1f} s without a commit"
    text = f"{report.trial}; {report.generations} generations, {times}{missed}"
    return report.describe_end(text)

"""`python -m chaos.tasks`: run random trials of task jobs, and print a table; the exit status is 1 if any failed.

Every fifth trial is an all-reduce job with a name such as 1-a007, and with --allreduce every trial is one; the other
trials have trainers and parameter servers. A name defines the whole trial, whatever --count is. The directories of
failed trials are kept, with all logs, the store, the output and result.json; other directories are removed.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from etcd_process import BINARY

from chaos import network
from chaos.allreduce.plan import AllReduceTrial, make_allreduce_trials
from chaos.allreduce.running import describe_allreduce, run_allreduce_trial
from chaos.allreduce.table import format_allreduce_table
from chaos.allreduce.trial import AllReduceReport
from chaos.processes import TrialProcesses, run_and_show, run_side_by_side, run_until_interrupted
from chaos.tasks.plan import FILES, SHORT, ElasticTrial, make_elastic_trials
from chaos.tasks.static import measure_static_error
from chaos.tasks.table import format_elastic_table
from chaos.tasks.trial import END_BOUND, HARD_BOUND, ElasticReport, read_elastic_report

ROOT = Path(__file__).parents[3]
TEXTS = ROOT.parent / "shared" / "data" / "rt-polarity"
TRIAL_BOUND = HARD_BOUND + 2 * END_BOUND  # seconds after which the process of a trial is ended
# static jobs per mode; asynchronous jobs end with different models, whose test errors spread by 0.33 points in 50 jobs
STATIC_JOBS = {"sync": 1, "async": 3}
SHARE = 5  # one of so many trials is an all-reduce job
HELD_OUT = {"digits": "1/3", "texts": "1/5"}  # fraction of the samples in the test set


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(prog="chaos.tasks", description=__doc__)
    parser.add_argument("--count", type=int, default=SHORT[0], help="trials (default 17)")
    parser.add_argument("--seed", type=int, default=SHORT[1], help="the same seed gives the same trials")
    parser.add_argument("--jobs", type=int, default=2, help="trials side by side (default 2)")
    parser.add_argument(
        "--strangers", action="store_true", help="with hostile connections to every port (chaos.strangers)"
    )
    parser.add_argument("--allreduce", action="store_true", help="only all-reduce jobs")
    parser.add_argument("--only", default="", help="only the trial of this name, such as 1-007 or 1-a007")
    parser.add_argument("--directory", type=Path, help="where the trials live (default: a new one)")
    return parser.parse_args(argv)


class ElasticRunner:
    """Runs each trial in a separate process, and keeps the data that all trials need."""

    def __init__(self, directory: Path, processes: TrialProcesses, *, strangers: bool = False) -> None:
        self.directory, self._processes = directory, processes
        self.isolated = network.isolate()
        beside = (sys.executable, "-m", "chaos.strangers") if strangers else ()
        self._before = (*(self.isolated or ()), *beside)
        self._references: dict[str, float] = {}

    def prepare(self, kinds: set[tuple[str, str]]) -> None:
        """Make the data, and train the static jobs with whose test errors the trials are compared.

        Args: kinds: (data, mode) of the trials.
        """
        for data in sorted({kind for kind, _ in kinds}):
            for count in (1, 3):
                self._make_data(data, count)
        for data, mode in sorted(kinds):
            errors = [
                measure_static_error(self.directory / f"static-{data}-{mode}-{number}", self._data(data, 3), data, mode)
                for number in range(STATIC_JOBS[mode])
            ]
            self._references[f"{data}-{mode}"] = max(errors)
            shown = ", ".join(f"{error:.2%}" for error in errors)
            print(f"static job, {data}, {mode}: test error {shown}", flush=True)

    def run(self, trial: ElasticTrial | AllReduceTrial) -> ElasticReport | AllReduceReport:
        """Run a trial."""
        if isinstance(trial, AllReduceTrial):
            return run_allreduce_trial(trial, self.directory, self._before, self.isolated is not None, self._processes)
        folder = self.directory / trial.name
        spec = {
            "trial": asdict(trial),
            "data": str(self._data(trial.data, 1) / "0" / "data"),
            "reference": self._references[f"{trial.data}-{trial.mode}"],
            "isolated": self.isolated is not None,
        }
        fault = self._processes.run_trial("chaos.tasks.trial", folder, spec, self._before, TRIAL_BOUND)
        return ElasticReport(trial, str(folder), faults=[fault]) if fault else read_elastic_report(folder)

    def _data(self, data: str, count: int) -> Path:
        return self.directory / f"{data}-{count}"

    def _make_data(self, data: str, count: int) -> None:
        """Make the data of a task job, with a file for each task, or of a static job with three trainers."""
        source = ["--data_source=quick_start", f"--data_path={TEXTS}"] if data == "texts" else []
        where = [f"--out_dir={self._data(data, count)}", f"--examples_dir={ROOT / 'examples'}"]
        how = [f"--split_count={count}", f"--shard_files={FILES // count}", f"--test_fraction={HELD_OUT[data]}"]
        command = [sys.executable, "-m", "paddle", "prepare", *where, *how, *source]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)


def has_torch() -> bool:
    """Return whether the workers of a job can train with PyTorch."""
    return importlib.util.find_spec("torch") is not None


def make_mixed_trials(count: int, seed: int, has_texts: bool, can_cut: bool) -> list[ElasticTrial | AllReduceTrial]:
    """Return `count` trials, of which every fifth is an all-reduce job."""
    most = count // SHARE
    reduced = iter(make_allreduce_trials(most, seed, can_cut=can_cut, has_torch=has_torch()))
    others = iter(make_elastic_trials(count - most, seed, has_texts=has_texts, can_cut=can_cut))
    return [next(reduced) if number % SHARE == SHARE - 1 else next(others) for number in range(count)]


def find_trial(name: str, has_texts: bool, can_cut: bool) -> list[ElasticTrial | AllReduceTrial]:
    """Return the trial with a name such as 1-007 or 1-a007, or None if it is not a name."""
    seed, _, number = name.partition("-")
    digits = number.removeprefix("a")
    if not seed.isdigit() or not digits.isdigit():
        return []
    count = int(digits) + 1
    if digits != number:
        return [*make_allreduce_trials(count, int(seed), can_cut=can_cut, has_torch=has_torch())[-1:]]
    return [*make_elastic_trials(count, int(seed), has_texts=has_texts, can_cut=can_cut)[-1:]]


def describe(report: ElasticReport | AllReduceReport) -> str:
    """Return the lines of output about a trial."""
    if isinstance(report, AllReduceReport):
        return describe_allreduce(report)
    error = "" if report.error is None else f", test error {report.error:.2%}"
    text = f"{report.trial}; {report.trained} samples{error}, {report.seconds:.1f} s"
    return report.describe_end(text)


def run_trials(arguments: argparse.Namespace, directory: Path, reports: list[ElasticReport | AllReduceReport]) -> None:
    """Run everything, and add a report of each trial to `reports`."""
    processes = TrialProcesses()
    runner = ElasticRunner(directory, processes, strangers=arguments.strangers)
    if runner.isolated is None:
        print("no network namespace can be made here (root, or user namespaces, and `ip`): no cuts", flush=True)
    if not has_torch():
        print("torch is not installed: the workers of all-reduce jobs train with numpy only", flush=True)
    trials = make_mixed_trials(arguments.count, arguments.seed, TEXTS.is_dir(), runner.isolated is not None)
    if arguments.allreduce:
        can_cut = runner.isolated is not None
        trials = [*make_allreduce_trials(arguments.count, arguments.seed, can_cut=can_cut, has_torch=has_torch())]
    if arguments.only:
        trials = find_trial(arguments.only, TEXTS.is_dir(), runner.isolated is not None)
    if not trials:
        raise SystemExit(f"there is no trial {arguments.only}; names are such as 1-007 and 1-a007")
    print(f"{len(trials)} trials of seed {arguments.seed}, {arguments.jobs} side by side, in {directory}", flush=True)

    def hear(report: ElasticReport | AllReduceReport) -> None:
        reports.append(report)
        print(describe(report), flush=True)
        if not report.faults:
            shutil.rmtree(report.directory, ignore_errors=True)

    runner.prepare({(trial.data, trial.mode) for trial in trials if isinstance(trial, ElasticTrial)})
    run_side_by_side(runner.run, trials, arguments.jobs, processes, hear)


def show_tables(reports: Sequence[ElasticReport | AllReduceReport]) -> str:
    """Return a table for each kind of trial that was run."""
    tasks = [report for report in reports if isinstance(report, ElasticReport)]
    reduced = [report for report in reports if isinstance(report, AllReduceReport)]
    tables = [format_elastic_table(tasks)] if tasks else []
    return "\n\n".join(tables + ([format_allreduce_table(reduced)] if reduced else []))


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything and return the exit status."""
    arguments = parse_arguments(argv)
    if not BINARY.exists():
        subprocess.run([ROOT / "tests" / "etcd" / "build"], check=True)
    return run_and_show(arguments.directory, arguments.seed, partial(run_trials, arguments), show_tables)


if __name__ == "__main__":
    sys.exit(run_until_interrupted(main))

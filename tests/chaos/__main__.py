"""`python -m chaos`: run many trials, some at the same time, and print a table; the exit status is 1 if any failed.

The directories of failed trials are kept, with all logs, the volume and result.json; other directories are removed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from chaos import network
from chaos.plan import HARMS, MODES, NETWORK_HARMS, PODS, SHORT, Trial, make_trials
from chaos.processes import TrialProcesses, run_and_show, run_side_by_side, run_until_interrupted
from chaos.table import format_table
from chaos.trial import BOUND, HARD_BOUND, ROOT, Report, read_report
from chaos.verdict import compare_passes, pass_directories

TRIAL_BOUND = HARD_BOUND + BOUND  # seconds after which the process of a trial is ended
TRIES = 3  # maximum runs of a trial whose harm came too late


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--count", type=int, default=SHORT[0], help="trials (default 12)")
    parser.add_argument("--seed", type=int, default=SHORT[1], help="the same seed gives the same trials")
    parser.add_argument("--jobs", type=int, default=2, help="trials side by side (default 2)")
    parser.add_argument("--modes", default=",".join(MODES), help="of these (default all)")
    parser.add_argument("--harms", default=",".join(HARMS), help="of these (default all)")
    parser.add_argument(
        "--strangers", action="store_true", help="with hostile connections to every port (chaos.strangers)"
    )
    parser.add_argument("--only", default="", help="only the trial of this name, such as 1-007")
    parser.add_argument("--directory", type=Path, help="where the trials live (default: a new one)")
    return parser.parse_args(argv)


def prepare(directory: Path) -> Path:
    """Return the job's directory with three shards of the digits."""
    command = [sys.executable, "-m", "paddle", "prepare", f"--out_dir={directory / 'data'}", f"--split_count={PODS}"]
    subprocess.run(
        [*command, f"--examples_dir={ROOT / 'examples'}"], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    return directory / "data"


class Runner:
    """Runs each trial in a separate process, and keeps the data that all trials need."""

    def __init__(self, directory: Path, processes: TrialProcesses, *, strangers: bool = False) -> None:
        self.directory, self._processes = directory, processes
        self.data = prepare(directory)
        self.isolated = network.isolate()
        beside = (sys.executable, "-m", "chaos.strangers") if strangers else ()
        self._before = (*(self.isolated or ()), *beside)

    def run(self, trial: Trial) -> Report:
        """Run a trial; repeat it if its harm came too late."""
        for number in range(TRIES):
            tried = replace(
                trial, name=f"{trial.name}{'abc'[number] if number else ''}", jitter=trial.jitter / 2**number
            )
            report = self._run_once(tried)
            if not report.missed:
                break
            shutil.rmtree(report.directory, ignore_errors=True)
        return report

    def reference(self, mode: str) -> Path:
        """Return the directory of an undisturbed run."""
        return self.directory / f"undisturbed-{mode}"

    def _run_once(self, trial: Trial) -> Report:
        folder = self.directory / trial.name
        spec = {
            "trial": asdict(trial),
            "data": str(self.data),
            "reference": str(self.reference(trial.mode)) if trial.is_disturbed else "",
            "isolated": self.isolated is not None,
        }
        fault = self._processes.run_trial("chaos.trial", folder, spec, self._before, TRIAL_BOUND)
        return Report(trial, str(folder), faults=[fault]) if fault else read_report(folder)


def run_references(runner: Runner, modes: Sequence[str]) -> None:
    """Make the undisturbed runs. The synchronous run is made twice, because other runs are compared with its bits.

    Raises: SystemExit: one of them fails or differs.
    """
    outputs = []
    names = [f"undisturbed-{mode}" for mode in modes] + ["undisturbed-sync-again"]
    for name in names:
        report = runner.run(Trial(name, mode=name.split("-")[1]))
        print(f"{name}: {report.seconds:.1f} s, {report.pods} pods, last test cost {report.cost}", flush=True)
        if report.faults:
            raise SystemExit(f"{name} failed: {'; '.join(report.faults)}; see {report.directory}")
        outputs.append(pass_directories(Path(report.directory) / "volume" / "paddle-cluster-job" / "output"))
    if "sync" in modes:
        differences = compare_passes(outputs[list(modes).index("sync")], outputs[-1])
        if differences:
            raise SystemExit(f"two undisturbed runs differ: {'; '.join(differences)}; see {runner.directory}")


def describe(report: Report) -> str:
    """Return the line of output about a trial."""
    if report.missed:
        return f"missed  {report.trial} ({report.missed})"
    recovered = "" if report.recovered is None else f", training again after {report.recovered:.1f} s"
    text = f"{report.trial}: attempts {report.attempts}, pods {report.pods}{recovered}, {report.seconds:.1f} s"
    return report.describe_end(text)


def run_trials(arguments: argparse.Namespace, directory: Path, reports: list[Report]) -> None:
    """Run everything, and add a report of each trial to `reports`."""
    processes = TrialProcesses()
    runner = Runner(directory, processes, strangers=arguments.strangers)
    chosen = [harm for harm in arguments.harms.split(",") if runner.isolated or harm not in NETWORK_HARMS]
    if runner.isolated is None:
        print(
            "no network namespace can be made here (root, or user namespaces, and `ip` of iproute2): no cuts",
            flush=True,
        )
    modes = [mode for mode in MODES if mode in arguments.modes.split(",")]
    trials = make_trials(arguments.count, arguments.seed, modes=modes, harms=chosen)
    trials = [trial for trial in trials if arguments.only in ("", trial.name)]
    print(f"{len(trials)} trials of seed {arguments.seed}, {arguments.jobs} side by side, in {directory}", flush=True)

    def hear(report: Report) -> None:
        reports.append(report)
        print(describe(report), flush=True)
        if not report.faults:
            shutil.rmtree(report.directory, ignore_errors=True)

    run_references(runner, modes)
    run_side_by_side(runner.run, trials, arguments.jobs, processes, hear)


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything and return the exit status."""
    arguments = parse_arguments(argv)
    run = partial(run_trials, arguments)
    return run_and_show(arguments.directory, arguments.seed, run, format_table)


if __name__ == "__main__":
    sys.exit(run_until_interrupted(main))

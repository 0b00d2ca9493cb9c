"""`python -m chaos.allreduce`: run random trials of all-reduce jobs (from a seed), and print a table.

The exit status is 1 if any trial failed.

The directories of failed trials are kept, with all logs, the ledger and result.json. So are the directories of trials
that made no commit for SLOW_S. Other directories are removed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from chaos import network
from chaos.allreduce.plan import make_allreduce_trials
from chaos.allreduce.running import describe_allreduce, run_allreduce_trial
from chaos.allreduce.table import format_allreduce_table
from chaos.processes import TrialProcesses, run_until_interrupted

SLOW_S = 25.0  # seconds without a commit


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(prog="chaos.allreduce", description=__doc__)
    parser.add_argument("--count", type=int, default=16, help="trials (default 16)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same trials (default 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default 0)")
    parser.add_argument("--only", default="", help="only the trial of this name, such as 1-a007")
    parser.add_argument("--directory", type=Path, help="where the trials live (default: a new one)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything and return the exit status."""
    arguments = parse_arguments(argv)
    directory = (arguments.directory or Path(tempfile.mkdtemp(prefix="chaos-"))).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    isolated = network.isolate()
    if isolated is None:
        print("no network namespace can be made here (root, or user namespaces, and `ip`): no cuts", flush=True)
    made = make_allreduce_trials(arguments.first + arguments.count, arguments.seed, can_cut=isolated is not None)
    trials = [trial for trial in made[arguments.first :] if arguments.only in ("", trial.name)]
    print(f"{len(trials)} all-reduce trials of seed {arguments.seed} in {directory}", flush=True)
    began = time.monotonic()
    reports, processes = [], TrialProcesses()
    for trial in trials:
        report = run_allreduce_trial(trial, directory, isolated or (), isolated is not None, processes)
        reports.append(report)
        print(describe_allreduce(report), flush=True)
        if not report.faults and not arguments.only and report.pause < SLOW_S:
            shutil.rmtree(report.directory, ignore_errors=True)
    print()
    print(format_allreduce_table(reports))
    failed = sorted(report.trial.name for report in reports if report.faults)
    print(f"\n{len(reports) - len(failed)} of {len(reports)} trials passed in {time.monotonic() - began:.0f} s")
    if failed:
        print(f"failed: {', '.join(failed)} of seed {arguments.seed}; their logs: {directory}", file=sys.stderr)
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_until_interrupted(main))

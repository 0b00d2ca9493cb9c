"""How fast `paddle train` trains, against the same steps written by hand in plain numpy.

usage: bench/train.py [--only NAME ...] [--threads N ...] [--passes N] [--rounds N] [--batches N] [--nodes N]
       [--processor]

Four trainings: recommendation (batch 1600) and quick_start's lr, cnn and lstm (batch 128, vocabulary 30,000, about 80
words a text), on synthetic data. Each is the command as users run it, in a process of its own, with the log at its
defaults; a pass takes from one line of the log to the next, and the first, in which the provider reads, does not count.
Its peer, bench/numpy_baseline/, runs in alternation with it, so that noise hits both.

Before anything is timed, both train three times on one batch from the same parameters, without dropout: all three
costs must agree, or the baseline is not the same work.

With --processor, a rate is samples per second of processor time of all threads, over the passes after the first.
Other programs on the machine change them less; they need --passes of some seconds.

With --nodes N, the script measures distributed training instead: N trainers and N servers on this machine train in
step, each trainer on batches of its own. The figure is the samples of all of them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from machine import describe_machine, spread
from nodes import run_job
from workloads import TRAIN_LIST, WORKLOADS, Sizes, Workload, prepare

HERE = Path(__file__).parent
PASS_LINE = re.compile(r"I(\d{4} [\d:.]+) .*\]  Pass=\d+ .*samples=(\d+) AvgCost=(\S+)")
TOLERANCE = 2e-5  # of a cost; the log has six digits
CHECKED_STEPS = 3
FLAGS = ["--start_pass=1", "--saving_period=1000000"]  # nothing is saved, for only pass 0 would be

# Samples a second with 1 and 2 threads, measured on another machine.
PUBLISHED = {
    "recommendation": ("14.9k / 23.5k", "4.2k / 7.8k"),
    "lr": ("0.89M", "0.5-0.9M"),
    "cnn": ("1.48k / 2.37k", "1.4k / 2.3k"),
    "lstm": ("1.34k / 2.07k", "1.3k / 2.0k"),
}


HEADER = """
| training | threads | samples/s | baseline | ratio | peak | its peak | best engines, 1 / 2 threads (a) | legacy (a) |
|---|---|---|---|---|---|---|---|---|"""  # (a): another machine


@dataclass(frozen=True)
class TimedRun:
    """Samples a second of each counted pass, the highest memory in use, and the processor's time of the whole run."""

    rates: Sequence[float]
    peak_mb: float
    processor_s: float

    @classmethod
    def of(cls, rates: Sequence[float], usage: os.struct_rusage) -> TimedRun:
        return cls(rates, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def run_process(command: Sequence[str], directory: Path, environ: dict[str, str]) -> tuple[str, os.struct_rusage]:
    """Returns what a process wrote, on both outputs, and what it used.

    Raises: SystemExit: the process failed.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=directory, env=environ, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"bench/train.py: {' '.join(command)} failed:\n{text[-2000:]}")
    return text, usage


def bare_environment(**more: str) -> dict[str, str]:
    """Returns the environment without what decides on threads and kernels of numpy's products."""
    names = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name not in names} | more


def run_trainer(
    workload: Workload, directory: Path, *flags: str
) -> tuple[list[tuple[str, int, str]], os.struct_rusage]:
    """Returns time, samples and cost of each line of a pass, and what the process used."""
    command = [sys.executable, "-m", "paddle", "train", f"--config={workload.config}", *flags]
    text, usage = run_process(command, directory, bare_environment(PYTHONPATH=str(HERE.parent)))
    return [(when, int(samples), cost) for when, samples, cost in PASS_LINE.findall(text)], usage


def run_baseline(
    workload: Workload, directory: Path, model: Path, passes: int, *, threads: int = 1, keep: float = 0.75
) -> tuple[list[tuple[float, float]], os.struct_rusage]:
    """Returns seconds and cost of each pass, and what the process used."""
    command = [sys.executable, "-m", "numpy_baseline", workload.name, str(directory), str(model)]
    command += [f"--passes={passes}", f"--keep={keep}"]
    text, usage = run_process(
        command, directory, bare_environment(PYTHONPATH=str(HERE), OPENBLAS_NUM_THREADS=str(threads))
    )
    lines = [line.split() for line in text.splitlines()]
    return [(float(seconds), float(cost)) for seconds, cost in lines], usage


# ----- Whether it is the same work


def compare_costs(workload: Workload, directory: Path, sizes: Sizes) -> tuple[Path, list[float], list[float]]:
    """Returns a model, and the costs of three steps on one batch from it, by the trainer and by the baseline."""
    one_batch = Sizes(**{**vars(sizes), "batches": 1})
    prepare(workload, directory, one_batch, without_dropout=True)
    run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
    model = directory / "start/pass-00000"
    passes, _ = run_trainer(workload, directory, f"--init_model_path={model}", f"--num_passes={CHECKED_STEPS}")
    expected, _ = run_baseline(workload, directory, model, CHECKED_STEPS, keep=1)
    return model, [float(cost) for _, _, cost in passes], [cost for _, cost in expected]


def require_same_work(workload: Workload, directory: Path, sizes: Sizes) -> Path:
    """Returns a model to start from, after the comparison."""
    model, ours, baseline = compare_costs(workload, directory, sizes)
    if len(ours) != CHECKED_STEPS or not np.allclose(ours, baseline, rtol=TOLERANCE, atol=0):
        raise SystemExit(f"bench/train.py: {workload.name}: not the same work: costs {ours}, the baseline's {baseline}")
    count = sum(path.stat().st_size // 4 - 4 for path in model.iterdir() if path.name.startswith("_"))
    print(f"{workload.name}: {count:,} parameters; costs of three steps {ours}, of the baseline {baseline}")
    return model


# ----- Times


def time_trainer(workload: Workload, directory: Path, model: Path, threads: int, passes: int) -> TimedRun:
    """Returns the rates of `passes` passes after the first."""
    flags = [f"--init_model_path={model}", f"--trainer_count={threads}", f"--num_passes={passes + 1}", *FLAGS]
    lines, usage = run_trainer(workload, directory, *flags)
    pairs = itertools.pairwise(find_times(lines))
    return TimedRun.of([lines[0][1] / (after - before).total_seconds() for before, after in pairs], usage)


def time_baseline(
    workload: Workload, directory: Path, model: Path, threads: int, passes: int, samples: int
) -> TimedRun:
    """Returns the rates of `passes` passes after the first."""
    lines, usage = run_baseline(workload, directory, model, passes + 1, threads=threads)
    return TimedRun.of([samples / seconds for seconds, _ in lines[1:]], usage)


def time_by_processor(run: Callable[[int], TimedRun], passes: int, samples: int) -> TimedRun:
    """Returns one rate by the processor's time: that of `passes` passes after the first, of `samples` samples each."""
    first, whole = run(0), run(passes)
    return replace(whole, rates=[samples * passes / (whole.processor_s - first.processor_s)])


PRODUCTS = """
import time, numpy as np
x, w, out = np.ones((1600, 256), "f"), np.ones((256, 256), "f"), np.empty((1600, 256), "f")
times = [time.perf_counter()]
for _ in range(400):
    np.matmul(x, w, out=out)
    times.append(time.perf_counter())
print(round(2e-9 * x.size * 256 / np.median(np.diff(times))))
"""


def measure_products(threads: int) -> str:
    """Returns how fast numpy multiplies here, which is most of what the machines of two figures differ by."""
    environ = bare_environment(OPENBLAS_NUM_THREADS=str(threads))
    return run_process([sys.executable, "-c", PRODUCTS], HERE, environ)[0].strip()


def show_rates(rates: Sequence[float]) -> str:
    """Returns median (lowest to highest) in thousands."""
    return f"{statistics.median(rates) / 1e3:.2f}k ({min(rates) / 1e3:.2f} to {max(rates) / 1e3:.2f})"


def bench(workload: Workload, threads: int, model: Path, directory: Path, options: argparse.Namespace) -> str:
    """Returns a row of the table."""
    ours, peers, ratios = [], [], []
    passes = options.passes * workload.pass_factor
    samples = len((directory / (directory / TRAIN_LIST).read_text().strip()).read_text(encoding="utf-8").splitlines())

    def run_ours(count: int) -> TimedRun:
        return time_trainer(workload, directory, model, threads, count)

    def run_peer(count: int) -> TimedRun:
        return time_baseline(workload, directory, model, threads, count, samples)

    for _ in range(options.rounds):
        if options.processor:
            one, other = (time_by_processor(run, passes, samples) for run in (run_ours, run_peer))
        else:
            one, other = run_ours(passes), run_peer(passes)
        ratios.append(statistics.median(one.rates) / statistics.median(other.rates))
        ours.append(one)
        peers.append(other)
    rates, peer_rates = ([rate for run in runs for rate in run.rates] for runs in (ours, peers))
    cells = [workload.name, str(threads), show_rates(rates), show_rates(peer_rates), spread(ratios)]
    cells += [f"{max(run.peak_mb for run in runs):.0f} MB" for runs in (ours, peers)]
    return " | ".join(["", *cells, *PUBLISHED[workload.name], ""]).strip()


def find_times(lines: Sequence[tuple[str, int, str]]) -> list[datetime]:
    """Returns when each pass ended."""
    return [datetime.strptime(f"2000{when}", "%Y%m%d %H:%M:%S.%f") for when, _, _ in lines]


def bench_nodes(workload: Workload, nodes: int, directory: Path, passes: int, rounds: int) -> str:
    """Returns a row of the table of distributed training."""
    passes *= workload.pass_factor
    run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
    rates, trainer_mb, server_mb = [], 0.0, 0.0
    for _ in range(rounds):
        flags = [f"--config={workload.config}", f"--init_model_path={directory / 'start/pass-00000'}", *FLAGS]
        environ = bare_environment(PYTHONPATH=str(HERE.parent), OPENBLAS_NUM_THREADS="1")
        job = run_job(nodes, directory, environ, [*flags, f"--num_passes={passes + 1}"])
        lines = [[(when, int(n), cost) for when, n, cost in PASS_LINE.findall(text)] for text in job.logs]
        samples = sum(one[0][1] for one in lines)
        pairs = itertools.pairwise(find_times(lines[0]))
        rates += [samples / (after - before).total_seconds() for before, after in pairs]
        trainer_mb, server_mb = max(trainer_mb, job.trainer_mb), max(server_mb, job.server_mb)
    cells = [workload.name, str(nodes), show_rates(rates), f"{trainer_mb:.0f} MB", f"{server_mb:.0f} MB"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the comparison of costs, then a row for each training and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--passes", type=int, default=2, help="that count, in each of the rounds; lr has ten times more"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=Sizes.batches, help="of a pass")
    parser.add_argument(
        "--nodes",
        type=int,
        default=0,
        help="nodes of distributed training; 0: local training",
    )
    parser.add_argument("--processor", action="store_true", help="rates by the processor's time")
    options = parser.parse_args()
    sizes = Sizes(batches=options.batches)
    chosen = [workload for workload in WORKLOADS if not options.only or workload.name in options.only]
    print(describe_machine())
    if options.nodes:
        with tempfile.TemporaryDirectory() as scratch:
            print("| training | nodes | samples/s of all | peak of a trainer | of a server |\n|---|---|---|---|---|")
            for workload in chosen:
                directory = prepare(workload, Path(scratch, workload.name), sizes)
                print(bench_nodes(workload, options.nodes, directory, options.passes, options.rounds), flush=True)
        print(f"load at the end: {os.getloadavg()[0]:.1f}")
        return
    for threads in options.threads:
        print(f"products of (1600, 256) by (256, 256), {threads} threads: {measure_products(threads)} GFLOP/s")
    with tempfile.TemporaryDirectory() as scratch:
        models = {one.name: require_same_work(one, Path(scratch, f"{one.name}-check"), sizes) for one in chosen}
        print(HEADER)
        for workload in chosen:
            directory = prepare(workload, Path(scratch, workload.name), sizes)
            for threads in options.threads:
                model = models[workload.name]
                print(bench(workload, threads, model, directory, options), flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

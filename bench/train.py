"""Measure how fast `paddle train` trains, compared with the same steps in plain numpy, in torch and in TensorFlow.

usage: bench/train.py [--torch PYTHON] [--tensorflow PYTHON] [--only NAME ...] [--threads N ...] [--passes N]
       [--rounds N] [--batches N] [--processor]

There are four trainings on synthetic data: recommendation (batch 1600), and lr, cnn and lstm of quick_start (batch 128,
vocabulary 30,000, about 80 words per text). `paddle train` runs in a separate process with the default logging, as
users run it. The time of a pass is the time between two lines of its log. The first pass, in which the provider reads
the data, does not count. The baselines bench/numpy_baseline/, bench/torch_baseline/ and bench/tensorflow_baseline/ have
layers of the same sizes, the same batches and the same optimiser. The baselines run in alternation with `paddle train`,
so that other load affects all programs. `--torch` and `--tensorflow` name the Pythons of environments with these
libraries; a missing library is not measured.

Before the measurement, all programs train three times on one batch from the same parameters, without dropout. All three
costs of the numpy baseline must agree with the costs of `paddle train`. With torch and TensorFlow, only the first cost
must agree. The other costs must be similar, because the LSTMs of torch and TensorFlow have no peepholes and their
RMSProp begins with longer steps.

With --processor, a rate is the number of samples per second of processor time of all threads, over the passes after the
first. Other programs on the machine change these rates less. The rates are precise only if --passes is so large that
the passes take some seconds.

bench/nodes.py measures training on several nodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from machine import describe_machine, spread
from processes import Ended, find_peer, run_processes, thread_environment
from timing import (
    HERE,
    TimedRun,
    count_parameters,
    describe_products,
    read_baseline,
    run_trainer,
    show_rates,
    time_by_processor,
    time_trainer,
)
from workloads import WORKLOADS, Sizes, Workload, prepare

CHECKED_STEPS = 3


class Peer(NamedTuple):
    """A baseline: its package in bench/, its Python, and the tolerances of its costs in the three steps."""

    name: str
    package: str
    python: str
    tolerances: Sequence[float]  # maximum relative differences from the trainer's costs; the log has six digits


NUMPY = Peer("numpy baseline", "numpy_baseline", sys.executable, (2e-5,) * CHECKED_STEPS)
HEADER = """
| training | threads | program | samples/s | paddle train / it | peak |
|---|---|---|---|---|---|"""


def find_peers(options: argparse.Namespace) -> list[Peer]:
    """Returns the baselines that can run here."""
    peers = [NUMPY]
    for module, name in (("torch", "torch"), ("tensorflow", "TensorFlow")):
        if python := find_peer(getattr(options, module), module, name):
            peers.append(Peer(name, f"{module}_baseline", python, (1e-4, 0.1, 0.1)))
    return peers


def run_peer(
    peer: Peer, workload: Workload, directory: Path, model: Path, passes: int, *, threads: int = 1, keep: float = 0.75
) -> tuple[list[tuple[float, float]], Ended]:
    """Runs a baseline; returns the seconds and the cost of each pass, and the ended process."""
    command = [peer.python, "-m", peer.package, workload.name, str(directory), str(model)]
    command += [f"--passes={passes}", f"--keep={keep}"]
    (ended,) = run_processes([command], directory, thread_environment(threads, PYTHONPATH=str(HERE)))
    return read_baseline(ended.text), ended


# ----- Comparison of the costs


def compare_costs(
    workload: Workload, directory: Path, sizes: Sizes, peers: Sequence[Peer] = (NUMPY,)
) -> tuple[Path, list[float], Mapping[Peer, list[float]]]:
    """Returns a model, and the costs of three steps from this model on one batch, by the trainer and by each peer."""
    one_batch = Sizes(**{**vars(sizes), "batches": 1})
    prepare(workload, directory, one_batch, without_dropout=True)
    run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
    model = directory / "start/pass-00000"
    passes, _ = run_trainer(workload, directory, f"--init_model_path={model}", f"--num_passes={CHECKED_STEPS}")
    expected = {}
    for peer in peers:
        lines, _ = run_peer(peer, workload, directory, model, CHECKED_STEPS, keep=1)
        expected[peer] = [cost for _, cost in lines]
    return model, [float(line.cost) for line in passes], expected


def require_same_work(workload: Workload, directory: Path, sizes: Sizes, peers: Sequence[Peer]) -> Path:
    """Compares the costs of the trainer and of the peers; returns the model from which they started."""
    model, ours, expected = compare_costs(workload, directory, sizes, peers)
    print(f"{workload.name}: {count_parameters(model):,} parameters; costs of three steps {ours}", flush=True)
    for peer, costs in expected.items():
        print(f"    of {peer.name}: {costs}", flush=True)
        if len(ours) != CHECKED_STEPS or not np.all(np.abs(np.divide(costs, ours) - 1) <= peer.tolerances):
            raise SystemExit(f"bench/train.py: {workload.name}: {peer.name} does not do the same work")
    return model


# ----- Times


def bench(
    workload: Workload, threads: int, model: Path, directory: Path, peers: Sequence[Peer], options: argparse.Namespace
) -> list[str]:
    """Returns the rows of the trainer and of its peers."""
    passes = options.passes * workload.pass_factor
    samples = workload.count_samples(directory)

    def run_ours(count: int) -> TimedRun:
        return time_trainer(workload, directory, model, threads, count)

    def time_peer(peer: Peer) -> Callable[[int], TimedRun]:
        def run(count: int) -> TimedRun:
            lines, ended = run_peer(peer, workload, directory, model, count + 1, threads=threads)
            return TimedRun.of([samples / seconds for seconds, _ in lines[1:]], ended.usage)

        return run

    contestants = [run_ours, *map(time_peer, peers)]
    runs: list[list[TimedRun]] = []
    for _ in range(options.rounds):
        if options.processor:
            runs.append([time_by_processor(run, passes, samples) for run in contestants])
        else:
            runs.append([run(passes) for run in contestants])
    rows = []
    for name, column in zip(["paddle train", *(peer.name for peer in peers)], zip(*runs, strict=True), strict=True):
        ratios = [
            statistics.median(ours.rates) / statistics.median(its.rates)
            for (ours, *_), its in zip(runs, column, strict=True)
        ]
        rates = show_rates([rate for run in column for rate in run.rates])
        cells = [workload.name, str(threads), name, rates, "" if name == "paddle train" else spread(ratios)]
        rows.append(f"| {' | '.join([*cells, f'{max(run.peak_mb for run in column):.0f} MB'])} |")
    return rows


def main() -> None:
    """Prints the comparison of costs, then the rows of each training and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--tensorflow", default=sys.executable, help="path of a Python that has TensorFlow")
    parser.add_argument("--only", nargs="+", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--passes", type=int, default=2, help="number of timed passes in each round; lr has ten times as many"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=Sizes.batches, help="number of batches of a pass")
    parser.add_argument("--processor", action="store_true", help="measure rates by processor time")
    options = parser.parse_args()
    sizes = Sizes(batches=options.batches)
    chosen = [workload for workload in WORKLOADS if not options.only or workload.name in options.only]
    print(describe_machine())
    for threads in options.threads:
        print(describe_products(threads))
    peers = find_peers(options)
    with tempfile.TemporaryDirectory() as scratch:
        models = {one.name: require_same_work(one, Path(scratch, f"{one.name}-check"), sizes, peers) for one in chosen}
        print(HEADER)
        for workload in chosen:
            directory = prepare(workload, Path(scratch, workload.name), sizes)
            for threads in options.threads:
                print("\n".join(bench(workload, threads, models[workload.name], directory, peers, options)), flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

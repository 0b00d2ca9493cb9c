"""Measure how fast onnxruntime computes exported networks, compared with `paddle train --job=test`.

usage: bench/export.py [--only NAME ...] [--threads N ...] [--passes N] [--rounds N] [--batches N]

The networks are the four of bench/networks.py and the recommendation of bench/train.py, on their synthetic data. Each
is trained for a pass and exported with `paddle export`. A contestant is a process of its own, and they run in
alternation over the same samples in the same batches, which both have in memory after the first pass, which does not
count. `--job=test` also computes the cost and the evaluators, which the exported network has not, and reads the
parameters before each pass. bench/onnx_process.py also compares the outputs of a batch. The last columns have, relative
to an output's largest number, at least 1, the largest difference between both, and the rounding of `paddle train`: its
largest difference from numbers of double precision.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import workloads
from machine import describe_machine, spread
from networks import NETWORKS, Network, count_samples, prepare
from processes import bare_environment, run_processes
from timing import HERE, PADDLE, describe_products, find_rates, run_trainer

HEADER = """
| network | threads | onnxruntime, samples/s | --job=test | ratio | difference | rounding |
|---|---|---|---|---|---|---|"""
MODEL, FILE, LIST = "start/pass-00000", "model.onnx", "models"
RECOMMENDATION = next(one for one in workloads.WORKLOADS if one.name == "recommendation")
# the test data of a config are its training data
TESTS = {
    '"data/train.list", None': '"data/train.list", "data/train.list"',
    "test_list=None": 'test_list="data/train.list"',
}


@dataclass(frozen=True)
class Exported:
    """A network that is trained and exported in its directory."""

    name: str
    config: str
    batch_size: int
    directory: Path
    samples: int


def lay_out(scratch: Path, network: Network | workloads.Workload, batches: int | None) -> Exported:
    """Copies the config and draws the samples of a network; its test data are then its training data."""
    directory = scratch / network.name
    if isinstance(network, Network):
        prepare(network, directory, network.batch_size * (batches or network.batches))
        samples = count_samples(directory)
    else:
        sizes = workloads.Sizes(batches=batches or 10)
        workloads.prepare(network, directory, sizes)
        samples = network.count_samples(directory)
    config = directory / network.config
    text = config.read_text(encoding="utf-8")
    for old, new in TESTS.items():
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    return Exported(network.name, network.config, network.batch_size, directory, samples)


def export(one: Exported) -> None:
    """Trains a pass, and exports the network."""
    run_trainer(one, one.directory, "--num_passes=1", "--save_dir=start")
    command = [*PADDLE, "export", f"--config={one.config}", f"--init_model_path={MODEL}", FILE]
    (ended,) = run_processes([command], one.directory, bare_environment(PYTHONPATH=str(HERE.parent)))
    print(f"{one.name}: {ended.text.splitlines()[-1]}", flush=True)


def run_test(one: Exported, threads: int, passes: int) -> Sequence[float]:
    """Returns the samples per second of `passes` tests after the first."""
    (one.directory / LIST).write_text(f"{MODEL}\n" * (passes + 1), encoding="utf-8")
    lines, _ = run_trainer(one, one.directory, "--job=test", f"--model_list={LIST}", f"--trainer_count={threads}")
    return find_rates(lines, one.samples)


def run_onnx(one: Exported, threads: int, passes: int) -> tuple[list[str], Sequence[float]]:
    """Returns the difference and the rounding, and the samples per second of `passes` passes after the first."""
    # without -P the module `pserver` would be the one of bench/
    command = [sys.executable, "-P", str(HERE / "onnx_process.py"), one.config, MODEL, FILE]
    command += [f"--batch-size={one.batch_size}", f"--threads={threads}", f"--passes={passes + 1}"]
    (ended,) = run_processes([command], one.directory, bare_environment(PYTHONPATH=str(HERE.parent)))
    numbers, _, *seconds = [line for line in ended.text.splitlines() if line[:1].isdigit()]
    return [f"{float(one):.0e}" for one in numbers.split()], [one.samples / float(each) for each in seconds]


def bench(one: Exported, threads: int, passes: int, rounds: int) -> str:
    """Returns a row of the table."""
    its: list[Sequence[float]] = []
    ours: list[Sequence[float]] = []
    numbers: list[str] = []  # these do not differ from round to round
    for _ in range(rounds):
        numbers, rates = run_onnx(one, threads, passes)
        its.append(rates)
        ours.append(run_test(one, threads, passes))
    middle: Callable[[Sequence[float]], float] = statistics.median
    ratios = [middle(first) / middle(second) for first, second in zip(its, ours, strict=True)]
    columns = [spread([rate for rates in part for rate in rates]) for part in (its, ours)]
    return f"| {' | '.join([one.name, str(threads), *columns, spread(ratios), *numbers])} |"


def main() -> None:
    """Prints a row for each network and number of threads."""
    networks = {one.name: one for one in (*NETWORKS, RECOMMENDATION)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=networks, default=list(networks))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--passes", type=int, default=3, help="number of timed passes in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, help="number of batches of a pass; by default a pass takes some seconds")
    options = parser.parse_args()
    print(describe_machine())
    for threads in options.threads:
        print(describe_products(threads))
    with tempfile.TemporaryDirectory() as scratch:
        laid_out = [lay_out(Path(scratch), networks[name], options.batches) for name in options.only]
        for one in laid_out:
            export(one)
        print(HEADER)
        for one in laid_out:
            for threads in options.threads:
                print(bench(one, threads, options.passes, options.rounds), flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

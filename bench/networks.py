"""Measure how fast `paddle train` trains networks of images and of sequences, compared with the same networks in torch.

usage: bench/networks.py [--only NAME ...] [--threads N ...] [--passes N] [--rounds N] [--batches N] [--torch PYTHON]
       [--processor]

The networks are those of bench/network_configs, on synthetic data. `paddle train` runs in a separate process with the
default logging, as users run it. The time of a pass is the time between two lines of its log. The first pass, in which
the provider reads the data, does not count. The networks in torch, bench/torch_networks, have layers of the same sizes,
the same optimiser and the same batches, and run in alternation with `paddle train`. `--torch` names the Python of an
environment with torch; without torch only `paddle train` is measured.

The numbers of parameters differ a little, because torch's LSTM and GRU have two biases, and its LSTM has no peepholes.
Before the measurement both programs train a pass from different initial values; their costs must be similar.

With --processor, a rate is the number of samples per second of processor time of all threads, over the passes after the
first. Other programs on the machine change these rates less. With two threads, these rates do not show the gain by the
second thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import describe_machine, spread
from processes import bare_environment, find_peer, run_processes
from timing import HERE, TimedRun, count_parameters, describe_products, run_trainer, time_by_processor, time_trainer

HEADER = """
| network | threads | samples/s | torch | ratio | peak | its peak |
|---|---|---|---|---|---|---|"""
SHORTEST, LONGEST = 10, 30  # minimum and maximum length of a sequence


@dataclass(frozen=True)
class Network:
    """A timed training.

    `slots`: for each slot its kind, its size, and its group; in a sample, all sequences of a group have equal lengths.
    """

    name: str
    batch_size: int
    batches: int  # number of batches of a pass
    slots: Mapping[str, tuple[str, int, str]]

    @property
    def config(self) -> str:
        return f"{self.name}.py"


WORDS = ("sequence", 10000)
CONTEXTS = ("word", "ctx_n2", "ctx_n1", "ctx_0", "ctx_p1", "ctx_p2")
ROLES = {"verb": ("sequence", 3162, "a"), "mark": ("sequence", 2, "a"), "role": ("sequence", 59, "a")}
NETWORKS = (
    Network("vgg", 128, 3, {"image": ("vector", 3 * 32 * 32, ""), "label": ("index", 10, "")}),
    Network("attention", 32, 10, {"source": (*WORDS, "a"), "target": (*WORDS, "b"), "next": (*WORDS, "b")}),
    Network("db_lstm", 128, 6, {**{name: ("sequence", 44068, "a") for name in CONTEXTS}, **ROLES}),
    Network("crf", 64, 60, {"word": (*WORDS, "a"), "tag": ("sequence", 9, "a")}),
)


def prepare(network: Network, directory: Path, samples: int) -> Path:
    """Copies the configuration and draws the samples of a pass; returns the directory."""
    directory.mkdir()
    for name in ("provider.py", network.config):
        shutil.copy(HERE / "network_configs" / name, directory)
    (directory / "slots.json").write_text(json.dumps(network.slots), encoding="utf-8")
    (directory / "data").mkdir()
    (directory / "data/train.list").write_text("data/train.npz\n", encoding="utf-8")
    np.savez(directory / "data/train.npz", **draw_samples(network, samples))
    return directory


def draw_samples(network: Network, samples: int) -> dict[str, np.ndarray]:
    """Returns an array for each slot, and the lengths of each group of sequences."""
    draw, arrays = np.random.default_rng(7), {"samples": np.array(samples)}
    for name, (kind, size, group) in network.slots.items():
        if kind == "vector":
            arrays[name] = draw.random((samples, size), np.float32)
        elif kind == "index":
            arrays[name] = draw.integers(size, size=samples)
        else:
            if f"lengths of {group}" not in arrays:
                arrays[f"lengths of {group}"] = draw.integers(SHORTEST, LONGEST + 1, size=samples)
            arrays[name] = draw.integers(size, size=arrays[f"lengths of {group}"].sum())
    return arrays


def run_torch(network: Network, directory: Path, threads: int, passes: int, python: str) -> tuple[list[str], TimedRun]:
    """Returns the number of parameters and the cost of the first pass, and the rates of the passes after it."""
    command = [python, "-m", "torch_networks", network.name, str(directory), f"--threads={threads}"]
    command += [f"--passes={passes + 1}", f"--batch-size={network.batch_size}"]
    (ended,) = run_processes([command], directory, bare_environment(PYTHONPATH=str(HERE)))
    count, first, *others = ended.text.splitlines()
    samples = count_samples(directory)
    rates = [samples / float(line.split()[0]) for line in others]
    return [count, first.split()[1]], TimedRun.of(rates, ended.usage)


def count_samples(directory: Path) -> int:
    """Returns the number of samples that `draw_samples` has drawn."""
    with np.load(directory / "data/train.npz") as arrays:
        return int(arrays["samples"])


def start(network: Network, directory: Path, python: str | None) -> Path:
    """Trains a pass; prints the number of parameters and the cost in both programs; returns the trained model."""
    lines, _ = run_trainer(network, directory, "--num_passes=1", "--save_dir=start")
    model = directory / "start/pass-00000"
    line = f"{network.name}: {count_parameters(model):,} parameters, cost of the first pass {lines[0].cost}"
    if python:
        (its_count, its_cost), _ = run_torch(network, directory, 1, 0, python)
        line += f"; torch: {int(its_count):,}, {its_cost}"
    print(line, flush=True)
    return model


def bench(network: Network, threads: int, model: Path, python: str | None, options: argparse.Namespace) -> str:
    """Returns a row of the table."""
    directory = model.parents[1]

    def run_ours(passes: int) -> TimedRun:
        return time_trainer(network, directory, model, threads, passes)

    def run_peer(passes: int) -> TimedRun:
        return run_torch(network, directory, threads, passes, python or "")[1]

    contestants = [run_ours, run_peer] if python else [run_ours]
    runs: list[list[TimedRun]] = []
    for _ in range(options.rounds):
        if options.processor:
            samples = count_samples(directory)
            runs.append([time_by_processor(run, options.passes, samples) for run in contestants])
        else:
            runs.append([run(options.passes) for run in contestants])
    rates = [spread([rate for one in column for rate in one.rates]) for column in zip(*runs, strict=True)]
    peaks = [f"{max(one.peak_mb for one in column):.0f} MB" for column in zip(*runs, strict=True)]
    if not python:
        return f"| {' | '.join([network.name, str(threads), rates[0], '', '', peaks[0], ''])} |"
    ratios = [statistics.median(ours.rates) / statistics.median(its.rates) for ours, its in runs]
    return f"| {' | '.join([network.name, str(threads), *rates, spread(ratios), *peaks])} |"


def main() -> None:
    """Prints the compared models, then a row for each network and number of threads."""
    names = [network.name for network in NETWORKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--passes", type=int, default=2, help="number of timed passes in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, help="number of batches of a pass; by default a pass takes some seconds")
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--processor", action="store_true", help="measure rates by processor time")
    options = parser.parse_args()
    print(describe_machine())
    for threads in options.threads:
        print(describe_products(threads))
    python = find_peer(options.torch, "torch", "torch")
    with tempfile.TemporaryDirectory() as scratch:
        chosen = [network for network in NETWORKS if network.name in options.only]
        sizes = [one.batch_size * (options.batches or one.batches) for one in chosen]
        directories = [prepare(one, Path(scratch, one.name), size) for one, size in zip(chosen, sizes, strict=True)]
        models = [start(one, directory, python) for one, directory in zip(chosen, directories, strict=True)]
        print(HEADER)
        for network, model in zip(chosen, models, strict=True):
            for threads in options.threads:
                print(bench(network, threads, model, python, options), flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

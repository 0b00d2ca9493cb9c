"""Measure how fast programs of `paddle.v2` train, compared with `paddle train`, and what a reader in Python costs.

usage: bench/v2.py [--only NAME ...] [--passes N] [--rounds N] [--batches N] [--processor] [--feeder-only]

The trainings are those of bench/train.py. The program bench/v2_program.py has the same networks, and reads the same
samples. Both programs run in alternation, each in its own process, with one thread. The first pass does not count. In
the first pass `paddle train` reads the data, and keeps it in arrays; in every pass, the program shuffles samples that
are Python lists, and makes arrays of each batch.

With --processor, a rate is the number of samples per second of processor time, which other programs on the machine
change less.

For lr, a table has the rates of the three readers of the program: its network is so small that the reader shows.

The last table has the rows per second of `DataFeeder` alone, and of a conversion with numpy that is written by hand for
the type and checks nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from machine import describe_machine, spread
from processes import run_processes, thread_environment
from timing import (
    HERE,
    TimedRun,
    count_parameters,
    read_baseline,
    run_trainer,
    show_rates,
    time_by_processor,
    time_trainer,
)
from workloads import WORKLOADS, Sizes, Workload, prepare

from paddle.v2 import data_type
from paddle.v2.data_feeder import DataFeeder

HEADER = """
| training | paddle train | paddle.v2 | ratio | peak | its peak |
|---|---|---|---|---|---|"""
READERS = """
| reader of lr | samples/s | microseconds a sample |
|---|---|---|"""
FEEDER = """
| type | DataFeeder, rows/s | by hand | ratio |
|---|---|---|---|"""
TOLERANCE = 0.1  # maximum relative difference of the costs of the first pass; the shuffles differ
FEEDER_ROWS = 256
FEEDER_S = 0.2  # seconds of one measurement of the feeder


def run_program(workload: Workload, directory: Path, passes: int, reader: str = "shuffle") -> tuple[str, TimedRun]:
    """Returns the output of the program, and the rates of `passes` passes after the first."""
    command = [sys.executable, str(HERE / "v2_program.py"), workload.name, str(directory)]
    command += [f"--passes={passes + 1}", f"--reader={reader}"]
    (ended,) = run_processes([command], directory, thread_environment(1, PYTHONPATH=str(HERE.parent)))
    samples = workload.count_samples(directory)
    rates = [samples / seconds for seconds, _ in read_baseline(ended.text)[1:]]
    return ended.text, TimedRun.of(rates, ended.usage)


def require_same_work(workload: Workload, directory: Path) -> Path:
    """Compares the numbers of parameters and the costs of the first pass; returns the trained model."""
    lines, _ = run_trainer(workload, directory, "--num_passes=1", "--save_dir=start")
    model = directory / "start/pass-00000"
    text, _ = run_program(workload, directory, 0)
    size, cost = int(text.split()[text.split().index("parameters") + 1]), read_baseline(text)[0][1]
    print(f"{workload.name}: {size:,} parameters, cost of the first pass {lines[0].cost}; paddle.v2: {cost:g}")
    if size != count_parameters(model) or abs(cost / float(lines[0].cost) - 1) > TOLERANCE:
        raise SystemExit(f"bench/v2.py: {workload.name}: the two programs do not do the same work")
    return model


def measure(run: Callable[[int], TimedRun], passes: int, samples: int, options: argparse.Namespace) -> TimedRun:
    """Returns the rates of a program, by the clock or by processor time."""
    return time_by_processor(run, passes, samples) if options.processor else run(passes)


def bench(workload: Workload, directory: Path, model: Path, options: argparse.Namespace) -> str:
    """Returns a row of the table."""
    passes = options.passes * workload.pass_factor
    samples = workload.count_samples(directory)
    contestants: list[Callable[[int], TimedRun]] = [
        lambda count: time_trainer(workload, directory, model, 1, count),
        lambda count: run_program(workload, directory, count)[1],
    ]
    runs = [[measure(run, passes, samples, options) for run in contestants] for _ in range(options.rounds)]
    rates = [show_rates([rate for one in column for rate in one.rates]) for column in zip(*runs, strict=True)]
    ratios = [statistics.median(its.rates) / statistics.median(ours.rates) for ours, its in runs]
    peaks = [f"{max(one.peak_mb for one in column):.0f} MB" for column in zip(*runs, strict=True)]
    return f"| {' | '.join([workload.name, *rates, spread(ratios), *peaks])} |"


def bench_reader(workload: Workload, directory: Path, options: argparse.Namespace, reader: str) -> str:
    """Returns the row of a reader of the program."""
    passes, samples = options.passes * workload.pass_factor, workload.count_samples(directory)
    rates: list[float] = []
    for _ in range(options.rounds):
        rates += measure(
            lambda count: run_program(workload, directory, count, reader)[1], passes, samples, options
        ).rates
    return f"| {reader} | {show_rates(rates)} | {1e6 / statistics.median(rates):.1f} |"


# ----- The feeder alone

Batch = list[tuple[Any]]


def draw_rows(kind: str, rows: int) -> tuple[Any, Batch, Callable[[Batch], object]]:
    """Returns a type, samples of it as programs have them, and the conversion by hand."""
    draw = np.random.default_rng(1)
    if kind == "dense_vector(784), arrays":
        images = [draw.random(784, np.float32) for _ in range(rows)]
        return data_type.dense_vector(784), [(one,) for one in images], lambda batch: np.stack([x for (x,) in batch])
    if kind == "dense_vector(13), lists":
        lists = draw.random((rows, 13)).tolist()
        return data_type.dense_vector(13), [(one,) for one in lists], lambda b: np.array([x for (x,) in b], np.float32)
    if kind == "integer_value":
        ids = draw.integers(10, size=rows).tolist()
        return data_type.integer_value(10), [(one,) for one in ids], lambda b: np.array([x for (x,) in b], np.int32)
    words = [draw.integers(30000, size=size).tolist() for size in draw.integers(20, 140, size=rows)]
    make = data_type.sparse_binary_vector if kind.startswith("sparse") else data_type.integer_value_sequence
    return make(30000), [(one,) for one in words], join_by_hand


def join_by_hand(batch: Batch) -> object:
    lists = [one for (one,) in batch]
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=starts[1:])
    return np.array(list(itertools.chain.from_iterable(lists)), np.int64), starts


KINDS = (
    "dense_vector(784), arrays", "dense_vector(13), lists", "integer_value", "integer_value_sequence, 80 words",
    "sparse_binary_vector, 80 words",
)  # fmt: skip


def measure_rows(convert: Callable[[Batch], object], batch: Batch, seconds: float) -> float:
    """Returns the rows per second of a conversion."""
    convert(batch)
    count, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        convert(batch)
        count += len(batch)
    return count / spent


def bench_feeder(kind: str, rounds: int, seconds: float = FEEDER_S) -> str:
    """Returns a row of the table of the feeder; the two conversions alternate."""
    given, batch, by_hand = draw_rows(kind, FEEDER_ROWS)
    feeder = DataFeeder([("x", given)])
    rates = [(measure_rows(feeder, batch, seconds), measure_rows(by_hand, batch, seconds)) for _ in range(rounds)]
    ours, its = zip(*rates, strict=True)
    ratios = [one / other for one, other in rates]
    return f"| {kind} | {show_rates(ours)} | {show_rates(its)} | {spread(ratios)} |"


def show_trainings(chosen: Sequence[Workload], options: argparse.Namespace) -> None:
    """Prints the compared models, and the tables of the trainings and of the readers."""
    sizes = Sizes(**{} if options.batches is None else {"batches": options.batches})
    with tempfile.TemporaryDirectory() as scratch:
        directories = [prepare(one, Path(scratch, one.name), sizes) for one in chosen]
        models = [require_same_work(one, place) for one, place in zip(chosen, directories, strict=True)]
        print(HEADER)
        for workload, directory, model in zip(chosen, directories, models, strict=True):
            print(bench(workload, directory, model, options), flush=True)
        for workload, directory in zip(chosen, directories, strict=True):
            if workload.name == "lr":
                print(READERS)
                for reader in ("batches", "shuffle", "file"):
                    print(bench_reader(workload, directory, options, reader), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Prints the tables."""
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--passes", type=int, default=2, help="number of timed passes in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, help="number of batches of a pass; by default a pass takes some seconds")
    parser.add_argument("--processor", action="store_true", help="measure rates by processor time")
    parser.add_argument("--feeder-only", action="store_true", help="measure only the feeder")
    options = parser.parse_args(arguments)
    print(describe_machine())
    if not options.feeder_only:
        show_trainings([one for one in WORKLOADS if one.name in options.only], options)
    print(FEEDER)
    for kind in KINDS:
        print(bench_feeder(kind, options.rounds), flush=True)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

"""`paddle train` as a timed process: the passes of its log, and samples a second of those after the first."""

from __future__ import annotations

import itertools
import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from processes import bare_environment, run_processes

HERE = Path(__file__).parent
PADDLE = (sys.executable, "-m", "paddle")
PASS_LINE = re.compile(r"I(\d{4} [\d:.]+) .*\]  Pass=\d+ .*samples=(\d+) AvgCost=(\S+)")
BASELINE_LINE = re.compile(r"^(\d+\.\d+) (\S+)$", re.MULTILINE)  # bench/baseline.py writes it
FLAGS = ("--start_pass=1", "--saving_period=1000000")  # nothing is saved, for only pass 0 would be


class Configured(Protocol):
    """What has a configuration to train."""

    @property
    def config(self) -> str: ...


class PassLine(NamedTuple):
    """A line of the log about a pass: when it ended, its samples, and the mean cost as it is written."""

    ended: datetime
    samples: int
    cost: str


@dataclass(frozen=True)
class TimedRun:
    """Samples a second of each counted pass, the highest memory in use, and the processor's time of the whole run."""

    rates: Sequence[float]
    peak_mb: float
    processor_s: float

    @classmethod
    def of(cls, rates: Sequence[float], usage: os.struct_rusage) -> TimedRun:
        return cls(rates, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def read_passes(text: str) -> list[PassLine]:
    """Returns the lines of passes of a trainer's log."""
    return [
        PassLine(datetime.strptime(f"2000{when}", "%Y%m%d %H:%M:%S.%f"), int(samples), cost)
        for when, samples, cost in PASS_LINE.findall(text)
    ]


def read_baseline(text: str) -> list[tuple[float, float]]:
    """Returns seconds and cost of each pass of a baseline, among whatever its library writes."""
    return [(float(seconds), float(cost)) for seconds, cost in BASELINE_LINE.findall(text)]


def find_rates(lines: Sequence[PassLine], samples: int) -> list[float]:
    """Returns samples a second of each pass after the first, of `samples` samples each."""
    return [samples / (after.ended - before.ended).total_seconds() for before, after in itertools.pairwise(lines)]


def run_trainer(workload: Configured, directory: Path, *flags: str) -> tuple[list[PassLine], os.struct_rusage]:
    """Returns the lines of passes, and what the process used."""
    command = [*PADDLE, "train", f"--config={workload.config}", *flags]
    (ended,) = run_processes([command], directory, bare_environment(PYTHONPATH=str(HERE.parent)))
    return read_passes(ended.text), ended.usage


def time_trainer(workload: Configured, directory: Path, model: Path, threads: int, passes: int) -> TimedRun:
    """Returns the rates of `passes` passes after the first."""
    flags = [f"--init_model_path={model}", f"--trainer_count={threads}", f"--num_passes={passes + 1}", *FLAGS]
    lines, usage = run_trainer(workload, directory, *flags)
    return TimedRun.of(find_rates(lines, lines[0].samples), usage)


def time_by_processor(run: Callable[[int], TimedRun], passes: int, samples: int) -> TimedRun:
    """Returns one rate by the processor's time: that of `passes` passes after the first, of `samples` samples each."""
    first, whole = run(0), run(passes)
    return replace(whole, rates=[samples * passes / (whole.processor_s - first.processor_s)])


def count_parameters(model: Path) -> int:
    """Returns how many numbers a pass directory of `paddle train` has."""
    return sum(path.stat().st_size // 4 - 4 for path in model.iterdir() if path.name.startswith("_"))


def show_rates(rates: Sequence[float]) -> str:
    """Returns median (lowest to highest) in thousands."""
    return f"{statistics.median(rates) / 1e3:.2f}k ({min(rates) / 1e3:.2f} to {max(rates) / 1e3:.2f})"


PRODUCTS = """
import time, numpy as np
x, w, out = np.ones((1600, 256), "f"), np.ones((256, 256), "f"), np.empty((1600, 256), "f")
times = [time.perf_counter()]
for _ in range(400):
    np.matmul(x, w, out=out)
    times.append(time.perf_counter())
print(round(2e-9 * x.size * 256 / np.median(np.diff(times))))
"""


def describe_products(threads: int) -> str:
    """Returns how fast numpy multiplies here, which is most of what the machines of two figures differ by."""
    environ = bare_environment(OPENBLAS_NUM_THREADS=str(threads))
    (ended,) = run_processes([[sys.executable, "-c", PRODUCTS]], HERE, environ)
    return f"products of (1600, 256) by (256, 256), {threads} threads: {ended.text.strip()} GFLOP/s"

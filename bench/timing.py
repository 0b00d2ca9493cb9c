"""Run `paddle train` as a timed process: read the passes of its log, and their samples per second."""

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
BASELINE_LINE = re.compile(r"^(\d+\.\d+) (\S+)$", re.MULTILINE)  # bench/baseline.py writes such lines
FLAGS = ("--start_pass=1", "--saving_period=1000000")  # nothing is saved, because only pass 0 would be saved


class Configured(Protocol):
    """A workload with a config file to train."""

    @property
    def config(self) -> str: ...


class PassLine(NamedTuple):
    """A line of the log about a pass: the time of its end, its number of samples, and the mean cost as written."""

    ended: datetime
    samples: int
    cost: str


@dataclass(frozen=True)
class TimedRun:
    """Samples per second of each counted pass, the peak memory, and the processor time of the whole run."""

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
    """Returns the seconds and the cost of each pass of a baseline; other lines of its output are ignored."""
    return [(float(seconds), float(cost)) for seconds, cost in BASELINE_LINE.findall(text)]


def find_rates(lines: Sequence[PassLine], samples: int) -> list[float]:
    """Returns the samples per second of each pass after the first; every pass has `samples` samples."""
    return [samples / (after.ended - before.ended).total_seconds() for before, after in itertools.pairwise(lines)]


def run_trainer(workload: Configured, directory: Path, *flags: str) -> tuple[list[PassLine], os.struct_rusage]:
    """Runs `paddle train`; returns the log lines about passes, and the resources that the process has used."""
    command = [*PADDLE, "train", f"--config={workload.config}", *flags]
    (ended,) = run_processes([command], directory, bare_environment(PYTHONPATH=str(HERE.parent)))
    return read_passes(ended.text), ended.usage


def time_trainer(workload: Configured, directory: Path, model: Path, threads: int, passes: int) -> TimedRun:
    """Returns the rates of `passes` passes after the first."""
    flags = [f"--init_model_path={model}", f"--trainer_count={threads}", f"--num_passes={passes + 1}", *FLAGS]
    lines, usage = run_trainer(workload, directory, *flags)
    return TimedRun.of(find_rates(lines, lines[0].samples), usage)


def time_by_processor(run: Callable[[int], TimedRun], passes: int, samples: int) -> TimedRun:
    """Returns one rate per second of processor time, over `passes` passes of `samples` samples after the first pass."""
    first, whole = run(0), run(passes)
    return replace(whole, rates=[samples * passes / (whole.processor_s - first.processor_s)])


def count_parameters(model: Path) -> int:
    """Returns how many parameter elements the files of a pass directory of `paddle train` contain."""
    return sum(path.stat().st_size // 4 - 4 for path in model.iterdir() if path.name.startswith("_"))


def show_rates(rates: Sequence[float]) -> str:
    """Returns the text 'median (lowest to highest)' for some rates, in thousands."""
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
    """Returns how fast numpy multiplies on this machine; two machines' figures differ mostly by this speed."""
    environ = bare_environment(OPENBLAS_NUM_THREADS=str(threads))
    (ended,) = run_processes([[sys.executable, "-c", PRODUCTS]], HERE, environ)
    return f"products of (1600, 256) by (256, 256), {threads} threads: {ended.text.strip()} GFLOP/s"

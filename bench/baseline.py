"""The common part of the baselines of bench/train.py: data, initial parameters, and timed passes.

usage of each: PYTHONPATH=bench python -m NAME WORKLOAD DIRECTORY MODEL [--passes N] [--keep P]

NAME is numpy_baseline, torch_baseline or tensorflow_baseline. The program reads the data of DIRECTORY and the
parameters of MODEL (a pass directory of `paddle train`), trains N passes, and prints the seconds and the mean cost of
each pass. `--keep` is the fraction of the values that dropout keeps. Environment variables set the number of threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy_baseline.data import Ratings, Texts
from numpy_baseline.parameters import Parameters


class Training(NamedTuple):
    """The settings that all baselines of a workload share: the reader of its data, batch size and learning rate."""

    read: type
    batch_size: int
    rate: float


TRAININGS: Mapping[str, Training] = {
    "recommendation": Training(Ratings, 1600, 1e-3),
    "lr": Training(Texts, 128, 2e-3),
    "cnn": Training(Texts, 128, 2e-3),
    "lstm": Training(Texts, 128, 2e-3),
}
Step = Callable[[np.ndarray], float]  # trains on the samples with these numbers, and returns their mean cost
# make_step(options of the command line, data, parameters, learning rate)
MakeStep = Callable[[argparse.Namespace, Any, Parameters, float], Step]


def make_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that all baselines accept."""
    parser = argparse.ArgumentParser(
        prog=name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=TRAININGS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--keep", type=float, default=0.75)
    return parser


def run_passes(options: argparse.Namespace, make_step: MakeStep, seed: int = 1) -> None:
    """Prints seconds and mean cost of each pass over the shuffled data."""
    training = TRAININGS[options.workload]
    data = training.read(options.directory)
    step = make_step(options, data, Parameters(options.model), training.rate)
    shuffler = np.random.default_rng(seed)
    for _ in range(options.passes):
        began, costs = time.perf_counter(), 0.0
        order = shuffler.permutation(data.samples)
        for start in range(0, len(order), training.batch_size):
            numbers = order[start : start + training.batch_size]
            costs += step(numbers) * len(numbers)
        print(f"{time.perf_counter() - began:.6f} {costs / len(order):.6g}", flush=True)

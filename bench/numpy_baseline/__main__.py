"""The training steps of bench/train.py written out by hand in plain numpy: what the trainer is measured against.

usage: PYTHONPATH=bench python -m numpy_baseline WORKLOAD DIRECTORY MODEL [--passes N] [--keep P]

Reads the data of DIRECTORY and the parameters of MODEL (a pass directory of `paddle train`), trains N passes, and
prints the seconds and the mean cost of each. `--keep` is the share of values that dropout keeps.

There are no layers and no graph: each step is the straight line of operations of one network. Buffers are made once.
Sequences lie side by side, sorted by length, so that every time step is a block of rows. Sums over repeated ids go by
occurrence. The optimiser works in blocks that stay in the cache. numpy chooses the number of threads itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from numpy_baseline.data import Ratings, Texts
from numpy_baseline.lstm import LstmNetwork
from numpy_baseline.parameters import AdamRule, Parameters, RmsPropRule
from numpy_baseline.recommendation import RecommendationNetwork
from numpy_baseline.texts import BagOfWordsNetwork, ConvolutionNetwork

NETWORKS: Mapping[str, tuple] = {
    "recommendation": (RecommendationNetwork, Ratings, RmsPropRule, 1e-3, 1600),
    "lr": (BagOfWordsNetwork, Texts, AdamRule, 2e-3, 128),
    "cnn": (ConvolutionNetwork, Texts, AdamRule, 2e-3, 128),
    "lstm": (LstmNetwork, Texts, AdamRule, 2e-3, 128),
}


def train(workload: str, directory: Path, model: Path, passes: int, keep: float) -> list[tuple[float, float]]:
    """Returns seconds and mean cost of each pass over the shuffled data."""
    make_network, read, make_rule, rate, batch_size = NETWORKS[workload]
    data, parameters = read(directory), Parameters(model)
    network, rule = make_network(data, parameters, keep), make_rule(parameters, rate)
    shuffler = np.random.default_rng(1)
    results = []
    for _ in range(passes):
        began, costs = time.perf_counter(), 0.0
        order = shuffler.permutation(data.samples)
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            costs += network.run(numbers) * len(numbers)
            rule.step()
        results.append((time.perf_counter() - began, costs / len(order)))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="numpy_baseline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=NETWORKS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--keep", type=float, default=0.75)
    options = parser.parse_args()
    for seconds, cost in train(options.workload, options.directory, options.model, options.passes, options.keep):
        print(f"{seconds:.6f} {cost:.6g}")


if __name__ == "__main__":
    main()

"""The training steps of bench/train.py, written by hand in plain numpy; bench/train.py compares the trainer with them.

bench/baseline.py describes the command line. There are no layers and no graph: each step is a fixed sequence of
operations for one network. Buffers are allocated once. Sequences are sorted by length and packed, so that every time
step is a block of rows. Rows with equal ids are added by `sum_by_id`. The optimiser works in blocks that stay in the
cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
from baseline import Step, make_parser, run_passes

from numpy_baseline.data import Ratings, Texts
from numpy_baseline.lstm import LstmNetwork
from numpy_baseline.parameters import AdamRule, Parameters, RmsPropRule
from numpy_baseline.recommendation import RecommendationNetwork
from numpy_baseline.texts import BagOfWordsNetwork, ConvolutionNetwork

NETWORKS: Mapping[str, tuple] = {
    "recommendation": (RecommendationNetwork, RmsPropRule),
    "lr": (BagOfWordsNetwork, AdamRule),
    "cnn": (ConvolutionNetwork, AdamRule),
    "lstm": (LstmNetwork, AdamRule),
}


def make_step(options: argparse.Namespace, data: Ratings | Texts, parameters: Parameters, rate: float) -> Step:
    """Returns a function that trains on a batch."""
    make_network, make_rule = NETWORKS[options.workload]
    network, rule = make_network(data, parameters, options.keep), make_rule(parameters, rate)

    def step(numbers: np.ndarray) -> float:
        cost = network.run(numbers)
        rule.step()
        return cost

    return step


if __name__ == "__main__":
    run_passes(make_parser("numpy_baseline", __doc__).parse_args(), make_step)

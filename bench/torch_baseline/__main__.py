"""The trainings of bench/train.py in torch, on one node, or on several nodes by DistributedDataParallel over gloo.

bench/baseline.py describes the command line. On several nodes, each process has the further options
[--rank N --ranks N --port N].

All gradients are dense, also those of embeddings, so that RMSProp and Adam change every element, as in the trainer.
torch's RMSprop and its fused Adam accept no sparse gradients, and gloo does not add sparse gradients, but gathers them
all on every node. Adam is torch's fused Adam; torch has no fused RMSprop for CPUs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np
import torch
from baseline import Step, make_parser, run_passes
from numpy_baseline.data import Ratings, Texts
from numpy_baseline.parameters import Parameters
from torch import distributed, nn

from torch_baseline.recommendation import RecommendationModule
from torch_baseline.texts import BagOfWordsModule, ConvolutionModule, LstmModule

MakeOptimizer = Callable[..., torch.optim.Optimizer]


def make_rmsprop(values: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Returns the centred form of RMSProp.

    The trainer adds epsilon = 1e-6 under the root; torch adds epsilon after the root, and its epsilon is therefore the
    root of 1e-6.
    """
    return torch.optim.RMSprop(values, rate, alpha=0.95, eps=1e-3, centered=True)


def make_adam(values: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(values, rate, fused=True)


NETWORKS: Mapping[str, tuple[Callable[..., nn.Module], MakeOptimizer]] = {
    "recommendation": (RecommendationModule, make_rmsprop),
    "lr": (BagOfWordsModule, make_adam),
    "cnn": (ConvolutionModule, make_adam),
    "lstm": (LstmModule, make_adam),
}


def make_step(options: argparse.Namespace, data: Ratings | Texts, parameters: Parameters, rate: float) -> Step:
    """Returns a function that trains on a batch."""
    make_network, make_optimizer = NETWORKS[options.workload]
    torch.manual_seed(1)
    network = make_network(data, parameters, options.keep)
    optimizer = make_optimizer(list(network.parameters()), rate)
    compute, ranks = network, options.ranks
    if ranks > 1:
        distributed.init_process_group("gloo", f"tcp://127.0.0.1:{options.port}", rank=options.rank, world_size=ranks)
        compute = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True, static_graph=True)

    def step(numbers: np.ndarray) -> float:
        optimizer.zero_grad(set_to_none=ranks == 1)
        cost = compute(*network.read(numbers))  # the cost is the sum over the samples, as in the trainer
        # DistributedDataParallel divides gradients by the number of nodes, but parameter servers do not
        (cost * ranks).backward()
        optimizer.step()
        return cost.item() / len(numbers)

    return step


def main() -> None:
    parser = make_parser("torch_baseline", __doc__)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    run_passes(options, make_step, seed=1 + options.rank)
    if options.ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()

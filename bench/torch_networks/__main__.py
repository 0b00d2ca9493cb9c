"""Trains a network of bench/networks.py in torch.

usage: PYTHONPATH=bench python -m torch_networks NETWORK DIRECTORY --threads N --passes N --batch-size N

The program reads the data of DIRECTORY and trains N passes, each in a different order of the samples. The program
prints the number of parameters, then the seconds and the mean cost of each pass. The cost of a batch is a sum, as in
the trainer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from torch_networks.attention import Attention
from torch_networks.crf import Crf
from torch_networks.data import Data
from torch_networks.db_lstm import DbLstm
from torch_networks.vgg import Vgg

Networks = Mapping[str, tuple[type[torch.nn.Module], Callable[..., torch.optim.Optimizer]]]
NETWORKS: Networks = {
    "attention": (Attention, lambda values: torch.optim.Adam(values, 5e-4, fused=True)),
    "crf": (Crf, lambda values: torch.optim.Adam(values, 1e-3, fused=True)),
    "db_lstm": (DbLstm, lambda values: torch.optim.SGD(values, 1e-4, weight_decay=8e-4, fused=True)),
    "vgg": (Vgg, lambda values: torch.optim.SGD(values, 0.1 / 128, 0.9, weight_decay=0.0005 * 128, fused=True)),
}


def train(options: argparse.Namespace) -> None:
    """Prints a line for each pass."""
    make_network, make_optimizer = NETWORKS[options.network]
    torch.manual_seed(1)
    data, network = Data(options.directory), make_network()
    optimizer = make_optimizer(network.parameters())
    print(sum(values.numel() for values in network.parameters()), flush=True)
    shuffler = np.random.default_rng(1)
    for _ in range(options.passes):
        began, costs = time.perf_counter(), 0.0
        for slots in data.batches(shuffler.permutation(data.samples), options.batch_size):
            optimizer.zero_grad(set_to_none=True)
            cost = network(slots)
            cost.backward()
            optimizer.step()
            costs += cost.item()
        print(f"{time.perf_counter() - began:.6f} {costs / data.samples:.6g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="torch_networks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train(options)


if __name__ == "__main__":
    main()

"""Trains the model of `chaos/allreduce/allreduce_torch.py` by DistributedDataParallel with gloo, in two workers."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import torch
from chaos.allreduce.allreduce_model import FEATURES, GAMMA, MOMENTUM, make_data
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

SIZE = 2


def train(directory: Path, epochs: int, samples: int, batch: int) -> None:
    """Trains the part of a worker; rank 0 writes the weights into the file `weights` of the directory."""
    rank = int(os.environ["HOROVOD_RANK"])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{directory}/meeting", rank=rank, world_size=SIZE)
    inputs, targets = map(torch.from_numpy, make_data(samples))
    model = torch.nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=MOMENTUM)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA)
    for epoch in range(epochs):
        order = list(range(samples))
        random.Random(epoch).shuffle(order)  # as Horovod's ElasticSampler with the seed 0
        for begin in range(0, samples, batch):
            chosen = order[begin : begin + batch][rank::SIZE]
            optimizer.zero_grad()
            (parallel(inputs[chosen]).squeeze(1) - targets[chosen]).square().mean().div(2).backward()
            optimizer.step()
        schedule.step()
    if rank == 0:
        (directory / "weights").write_text(json.dumps(model.weight[0].tolist()))
    distributed.destroy_process_group()

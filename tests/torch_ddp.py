"""Trains the model of `chaos/allreduce/allreduce_torch.py` by DistributedDataParallel with gloo, in two processes.

usage: torch_ddp.py DIRECTORY EPOCHS SAMPLES BATCH. Rank 0 writes the weights into the file `weights` there. The
processes are forked, so that torch is imported once.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
from pathlib import Path

import torch
from chaos.allreduce.allreduce_model import FEATURES, GAMMA, MOMENTUM, make_data
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

SIZE = 2


def train(rank: int, directory: Path, epochs: int, samples: int, batch: int) -> None:
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    arguments = (Path(sys.argv[1]), *map(int, sys.argv[2:]))
    forks = multiprocessing.get_context("fork")
    ranks = [forks.Process(target=train, args=(rank, *arguments)) for rank in range(SIZE)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(max(abs(one.exitcode) for one in ranks))

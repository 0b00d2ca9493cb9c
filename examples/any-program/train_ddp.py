"""The digits with DistributedDataParallel of torch, over gloo: a script as `torchrun` starts it, with checkpoints.

The image needs torch (docs/own-images.md); the packages of this project are not used.

python train_ddp.py [EPOCHS]
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
STEPS = 20
STATES = Path(os.environ["PADDLE_OUTPUT"], "state")


def read(name):
    """Return the samples of a file of the shard, and the labels."""
    lines = Path("data", name).read_text().splitlines()
    rows = torch.tensor([[float(word) for word in line.split(",")] for line in lines])
    return rows[:, :-1] / 8 - 1, rows[:, -1].long()


def save(epoch, model, optimizer):
    """Write a checkpoint: a folder that is complete when it has the file `done`."""
    folder = STATES / f"pass-{epoch:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")
    (folder / "done").touch()


def restore(checkpoint, model, optimizer):
    """Return the first epoch to train."""
    if not checkpoint:
        return 0
    folder = Path(checkpoint)
    state = torch.load(folder / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(folder.name.removeprefix("pass-")) + 1


dist.init_process_group("gloo")  # finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
torch.manual_seed(1)
network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
begin = restore(os.environ.get("PADDLE_CHECKPOINT"), network, optimizer)
model = DistributedDataParallel(network)
samples, labels = read("train.txt")
test_samples, test_labels = read("test.txt")
for epoch in range(begin, EPOCHS):
    for step in range(STEPS):
        optimizer.zero_grad()
        cost = torch.nn.functional.cross_entropy(model(samples[step::STEPS]), labels[step::STEPS])
        cost.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        save(epoch, network, optimizer)
        with torch.no_grad():
            error = (network(test_samples).argmax(dim=1) != test_labels).float().mean()
        print(f"epoch {epoch}: {dist.get_world_size()} processes, test error {error:.4f}", flush=True)
        # the progress of the job, for paddle status and report.html
        print(f"Pass={epoch} Batch={STEPS} Passes={EPOCHS} AvgCost={cost.item():.4f} error={error:.4f}", flush=True)
    dist.barrier()  # no process trains on while the checkpoint is written
dist.destroy_process_group()

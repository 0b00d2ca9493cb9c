"""A PyTorch model of artificial digits, trained by a fixed number of workers.

paddle elastic run -np 2 python digits.py [EPOCHS]
"""

import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import paddle.elastic.torch as hvd

SAMPLES, PIXELS, CLASSES, BATCH = 2000, 64, 10, 50


def make_data():
    """Return digits, which are equal in all workers. A worker trains on the samples that its sampler selects."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, PIXELS, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return TensorDataset(centres[labels] + torch.randn(SAMPLES, PIXELS, generator=generator), labels)


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    hvd.init()
    torch.set_num_threads(1)
    data = make_data()
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, BATCH, sampler=sampler)

    model = torch.nn.Sequential(torch.nn.Linear(PIXELS, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        wrong = torch.zeros(())
        for digits, labels in loader:
            optimizer.zero_grad()
            scores = model(digits)
            F.cross_entropy(scores, labels).backward()
            optimizer.step()
            wrong += (scores.argmax(1) != labels).sum()
        error = hvd.allreduce(wrong / len(sampler), name="error").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch}: {hvd.size()} workers, error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()

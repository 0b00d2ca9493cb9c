"""A PyTorch model of artificial digits; workers may fail, leave and join.

paddle elastic run -np 2 --min-np 1 --max-np 4 --host-discovery-script ../discover.sh python digits_elastic.py [EPOCHS]
"""

import sys

import torch
import torch.nn.functional as F
from digits import BATCH, CLASSES, PIXELS, make_data
from torch.utils.data import DataLoader

import paddle.elastic.torch as hvd

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


@hvd.elastic.run
def train(state):
    """Train all epochs. The decorator calls this function again after each failure and each change of workers."""
    while state.epoch < EPOCHS:
        for number, (digits, labels) in enumerate(DataLoader(state.sampler.dataset, BATCH, sampler=state.sampler)):
            state.optimizer.zero_grad()
            F.cross_entropy(state.model(digits), labels).backward()
            state.optimizer.step()
            state.sampler.record_batch(number, BATCH)
            state.commit()
        digits, labels = state.sampler.dataset.tensors
        error = (state.model(digits).argmax(1) != labels).float().mean().item()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} workers, error {error:.4f}", flush=True)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


def main():
    data = make_data()  # what takes long comes before init, because the others do not wait for it
    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(PIXELS, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    train(hvd.elastic.TorchState(model, optimizer, sampler=hvd.elastic.ElasticSampler(data), epoch=0))


if __name__ == "__main__":
    main()

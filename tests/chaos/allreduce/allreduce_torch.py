"""The worker of `allreduce_worker.py` with a model of PyTorch, and a DataLoader with a process of its own.

The optimizer has a momentum, and a schedule changes its learning rate, so that a wrong state of either is seen in the
weights.
"""

import numpy as np
import torch
from allreduce_model import FEATURES, GAMMA, MOMENTUM, make_data
from allreduce_notes import BATCH, EPOCHS, SAMPLES, Notes, pace
from torch.utils.data import DataLoader, TensorDataset

import paddle.elastic.torch as hvd


class LedgerState(hvd.elastic.TorchState):
    """A state that records its commits in the ledger."""

    def save(self):
        """Save the state and write the line; nothing can happen between these two actions."""
        super().save()
        slot = self.optimizer.state_dict()["state"][0]
        notes.commit(self, [self.model.weight.detach().numpy(), slot["momentum_buffer"].numpy()])


@hvd.elastic.run
def train(state):
    """Train; the caller calls this again after every failure and every change of workers."""
    while state.epoch < EPOCHS:
        share = BATCH // hvd.size()
        for batch, (x, y, chosen) in enumerate(DataLoader(data, share, sampler=state.sampler, num_workers=1)):
            pace()
            state.optimizer.zero_grad()
            (state.model(x).squeeze(1) - y).square().mean().div(2).backward()
            state.optimizer.step()
            state.batch = sorted(hvd.allgather(chosen, name="chosen").tolist())
            np.add.at(state.seen, (state.epoch, state.batch), 1)
            state.step += 1
            state.sampler.record_batch(batch, share)
            state.commit()
        state.epoch += 1
        state.schedule.step()
        state.sampler.set_epoch(state.epoch)


notes = Notes()
inputs, targets = map(torch.from_numpy, make_data(SAMPLES))
data = TensorDataset(inputs, targets, torch.arange(SAMPLES))
hvd.init()
model = torch.nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
torch.nn.init.zeros_(model.weight)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=MOMENTUM), model.named_parameters()
)
state = LedgerState(
    model, optimizer, schedule=torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA), batch=[], epoch=0, step=0,
    seen=np.zeros((EPOCHS, SAMPLES), np.int64), sampler=hvd.elastic.ElasticSampler(data),
)  # fmt: skip
train(state)
notes.end(state, model.weight.detach().numpy()[0])

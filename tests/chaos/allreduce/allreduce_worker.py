"""A worker of a trial: linear regression; each step uses the next 12 samples, however many workers share them.

`seen` is a part of the state; it counts how often each sample was trained.
"""

import numpy as np
from allreduce_model import FEATURES, fit, make_data
from allreduce_notes import BATCH, EPOCHS, SAMPLES, Notes, pace

import paddle.elastic as hvd


class LedgerState(hvd.elastic.ArrayState):
    """A state that records its commits in the ledger."""

    batch: list[int]

    def save(self):
        """Save the state and write the line; nothing can happen between these two actions."""
        super().save()
        notes.commit(self, [self.weights])


@hvd.elastic.run
def train(state):
    """Train; the caller calls this again after every failure and every change of workers."""
    while state.epoch < EPOCHS:
        indices = list(state.sampler)
        share = BATCH // hvd.size()
        for batch, begin in enumerate(range(0, len(indices), share)):
            chosen = np.array(indices[begin : begin + share], np.int64)
            pace()
            step = hvd.allreduce(fit(state.weights, x[chosen], y[chosen]), name="gradient")
            state.batch = sorted(hvd.allgather(chosen, name="chosen").tolist())
            state.weights -= 0.05 * step
            np.add.at(state.seen, (state.epoch, state.batch), 1)
            state.step += 1
            state.sampler.record_batch(batch, share)
            state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


notes = Notes()
x, y = make_data(SAMPLES)
hvd.init()
state = LedgerState(
    weights=np.zeros(FEATURES), seen=np.zeros((EPOCHS, SAMPLES), np.int64),
    sampler=hvd.elastic.ElasticSampler(x), epoch=0, step=0,
)  # fmt: skip
train(state)
notes.end(state, state.weights)

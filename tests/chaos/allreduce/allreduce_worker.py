"""A worker of a trial: linear regression; each step uses the next 12 samples, however many workers share them.

Each process writes a file in the directory that CHAOS_LEDGER names. The file has JSON lines: one when the process
begins, one for each commit, and one when it ends. The line of a commit has the samples of the whole step, which all
ranks have exchanged. `seen` is a part of the state; it counts how often each sample was trained.
"""

import hashlib
import json
import os
import time

import numpy as np
from allreduce_model import FEATURES, fit, make_data

import paddle.elastic as hvd

EPOCHS, SAMPLES, BATCH = (int(os.environ[f"CHAOS_{name}"]) for name in ("EPOCHS", "SAMPLES", "BATCH"))
PACE_S = float(os.environ["CHAOS_PACE"])
INCARNATION = os.environ["PADDLE_ELASTIC_INCARNATION"]


def write(**fields):
    """Add a line by a single write, so that a killed process leaves no half line."""
    ledger.write(json.dumps(fields).encode() + b"\n")


def digest(array):
    """Return a digest of the bits of an array."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


class LedgerState(hvd.elastic.ArrayState):
    """A state that records its commits in the ledger."""

    batch: list[int]

    def save(self):
        """Save the state and write the line; nothing can happen between these two actions."""
        super().save()
        generation = hvd_placement().generation
        write(
            step=self.step, generation=generation, rank=hvd.rank(), size=hvd.size(), epoch=self.epoch,
            batch=self.batch, weights=digest(self.weights),
        )  # fmt: skip


def hvd_placement():
    """Return the generation, for which Horovod's interface has no function."""
    from paddle_cluster.elastic.process.membership import WORKER

    return WORKER.placement


@hvd.elastic.run
def train(state):
    """Train; the caller calls this again after every failure and every change of workers."""
    while state.epoch < EPOCHS:
        indices = list(state.sampler)
        share = BATCH // hvd.size()
        for batch, begin in enumerate(range(0, len(indices), share)):
            chosen = np.array(indices[begin : begin + share], np.int64)
            time.sleep(PACE_S)
            step = hvd.allreduce(fit(state.weights, x[chosen], y[chosen]), name="gradient")
            state.batch = sorted(hvd.allgather(chosen, name="chosen").tolist())
            state.weights -= 0.05 * step
            np.add.at(state.seen, (state.epoch, state.batch), 1)
            state.step += 1
            state.sampler.record_batch(batch, share)
            state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


with open(f"{os.environ['CHAOS_LEDGER']}/{INCARNATION}", "ab", buffering=0) as ledger:  # noqa: PTH123
    write(pid=os.getpid(), host=os.environ["HOROVOD_HOSTNAME"], local_rank=os.environ["HOROVOD_LOCAL_RANK"])
    x, y = make_data(SAMPLES)
    hvd.init()
    state = LedgerState(
        weights=np.zeros(FEATURES), seen=np.zeros((EPOCHS, SAMPLES), np.int64),
        sampler=hvd.elastic.ElasticSampler(x), epoch=0, step=0,
    )  # fmt: skip
    train(state)
    write(end=state.step, weights=[float(w).hex() for w in state.weights], seen=state.seen.tolist())

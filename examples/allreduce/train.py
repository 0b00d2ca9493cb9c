"""A numpy training loop for softmax regression on artificial digits; workers may fail, leave and join.

paddle elastic run -np 2 --min-np 1 --max-np 4 --host-discovery-script ./discover.sh python train.py [EPOCHS]
"""

import sys

import numpy as np

import paddle.elastic as hvd

SAMPLES, INPUTS, CLASSES, BATCH, RATE = 2000, 64, 10, 25, 0.5
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 4


def make_data():
    """Return samples, which are equal in all workers. A worker trains on the samples that its sampler selects."""
    random = np.random.default_rng(1)
    centres = random.standard_normal((CLASSES, INPUTS)).astype(np.float32)
    labels = random.integers(0, CLASSES, SAMPLES)
    return centres[labels] + random.standard_normal((SAMPLES, INPUTS)).astype(np.float32), labels


def gradient(weights, x, labels):
    """Return the mean gradient of the cross entropy of a batch."""
    scores = x @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return x.T @ p / len(labels)


@hvd.elastic.run
def train(state):
    """Train all epochs. The decorator calls this function again after each failure and each change of workers."""
    while state.epoch < EPOCHS:
        indices = list(state.sampler)
        for batch, begin in enumerate(range(0, len(indices), BATCH)):
            chosen = indices[begin : begin + BATCH]
            step = hvd.allreduce(gradient(state.weights, data[chosen], labels[chosen]), name="gradient")
            state.weights -= RATE * step
            state.sampler.record_batch(batch, len(chosen))
            state.commit()
        error = np.mean((data @ state.weights).argmax(axis=1) != labels)
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {hvd.size()} workers, error {error:.4f}", flush=True)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
    return error


hvd.init()
data, labels = make_data()
train(
    hvd.elastic.ArrayState(
        weights=np.zeros((INPUTS, CLASSES), np.float32), sampler=hvd.elastic.ElasticSampler(data), epoch=0
    )
)

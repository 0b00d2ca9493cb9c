"""The worker of a job of k8s/allreduce in a test: softmax regression with a fixed order of global batches.

python allreduce_script.py DIRECTORY

It trains until the file `stop` exists in DIRECTORY. Rank 0 writes the step and the number of workers to the file
`progress` there. At the end it writes `result`: the difference between the weights and those of a single process that
nothing disturbed. Each generation adds a line to `generations`: the steps trained before, and its first step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import paddle.elastic as hvd

SAMPLES, INPUTS, CLASSES, BATCH, RATE, PACE_S = 1200, 16, 4, 60, 0.1, 0.03


def gradient(weights: np.ndarray, x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the cross entropy, summed over the samples."""
    scores = x @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return x.T @ p


def batch_of(step: int) -> np.ndarray:
    return np.arange(step * BATCH, (step + 1) * BATCH) % SAMPLES


def write(directory: Path, name: str, value: dict[str, float]) -> None:
    fresh = directory / f"{name}.{os.getpid()}"
    fresh.write_text(json.dumps(value))
    fresh.replace(directory / name)


random = np.random.default_rng(1)
labels = random.integers(0, CLASSES, SAMPLES)
data = random.standard_normal((CLASSES, INPUTS))[labels] + random.standard_normal((SAMPLES, INPUTS))


@hvd.elastic.run
def train(state: hvd.elastic.ArrayState, directory: Path) -> None:
    if hvd.rank() == 0:
        path = directory / "progress"
        trained = json.loads(path.read_text())["step"] if path.exists() else 0
        with (directory / "generations").open("a") as file:
            file.write(json.dumps({"trained": trained, "began": state.step, "size": hvd.size()}) + "\n")
    while not hvd.allreduce(np.array([float((directory / "stop").exists())]), name="stop", op=hvd.Max)[0]:
        chosen = batch_of(state.step)[hvd.rank() :: hvd.size()]
        total = hvd.allreduce(gradient(state.weights, data[chosen], labels[chosen]), name="gradient", op=hvd.Sum)
        state.weights -= RATE * total / BATCH
        state.step += 1
        if hvd.rank() == 0:
            write(directory, "progress", {"step": state.step, "size": hvd.size()})
        state.commit()
        time.sleep(PACE_S)
    if hvd.rank() == 0:
        alone = np.zeros((INPUTS, CLASSES))
        for step in range(state.step):
            alone -= RATE * gradient(alone, data[batch_of(step)], labels[batch_of(step)]) / BATCH
        error = np.mean((data @ state.weights).argmax(axis=1) != labels)
        write(directory, "result", {"difference": float(np.abs(alone - state.weights).max()), "error": float(error)})


if __name__ == "__main__":
    hvd.init()
    train(hvd.elastic.ArrayState(weights=np.zeros((INPUTS, CLASSES)), step=0), Path(sys.argv[1]))

"""Softmax regression on the digits, in numpy, by processes that add up their gradients over sockets.

The pod gives each process its rank, the address of rank 0, its shard in ./data, and the newest checkpoint. If another
process is lost, this one ends with an error, and the launcher starts all of them again from the checkpoint.

python train.py [EPOCHS]
"""

import os
import socket
import sys
import time
from pathlib import Path

import numpy as np

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
STATES = Path(os.environ["PADDLE_OUTPUT"], "state")
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
STEPS, RATE, CONNECT_S = 20, 0.5, 60.0


def read(name):
    """Return the samples of a file of the shard: 64 pixels and a 1, and the labels."""
    rows = np.loadtxt(Path("data", name), delimiter=",", dtype=np.float32)
    rows = np.hstack([rows[:, :-1] / 8 - 1, np.ones((len(rows), 1), np.float32), rows[:, -1:]])
    return rows[:, :-1], rows[:, -1].astype(int)


def meet():
    """Return the connections: of rank 0 to all others, and of each other to rank 0."""
    if RANK == 0:
        listener = socket.create_server(MASTER, backlog=WORLD_SIZE)
        return [listener.accept()[0] for _ in range(WORLD_SIZE - 1)]
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return [socket.create_connection(MASTER)]
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def receive(peer, like):
    """Return an array of the size of another one from a connection."""
    data = bytearray()
    while len(data) < like.nbytes:
        part = peer.recv(like.nbytes - len(data))
        if not part:
            raise ConnectionError("Connection closed by peer")
        data += part
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def allreduce(array):
    """Return the sum of the arrays of all processes. Rank 0 adds them up."""
    if RANK == 0:
        total = array + sum(receive(peer, array) for peer in peers)
        for peer in peers:
            peer.sendall(total.tobytes())
        return total
    peers[0].sendall(array.tobytes())
    return receive(peers[0], array)


def probabilities(x):
    scores = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def save(epoch):
    """Write a checkpoint: a folder that is complete when it has the file `done`."""
    folder = STATES / f"pass-{epoch:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "weights.npy", weights)
    (folder / "done").touch()


def restore(checkpoint):
    """Return the first epoch to train, and the weights to begin with."""
    if not checkpoint:
        return 0, np.zeros((65, 10), np.float32)
    folder = Path(checkpoint)
    return int(folder.name.removeprefix("pass-")) + 1, np.load(folder / "weights.npy")


peers = meet()
samples, labels = read("train.txt")
test_samples, test_labels = read("test.txt")
begin, weights = restore(os.environ["PADDLE_CHECKPOINT"])
for epoch in range(begin, EPOCHS):
    for step in range(STEPS):
        x, y = samples[step::STEPS], labels[step::STEPS]
        gradient = x.T @ (probabilities(x) - np.eye(10, dtype=np.float32)[y])
        sums = allreduce(np.append(gradient, np.float32(len(x))))
        weights = weights - RATE * (sums[:-1] / sums[-1]).reshape(weights.shape)
    if RANK == 0:
        save(epoch)
        error = np.mean(probabilities(test_samples).argmax(axis=1) != test_labels)
        print(f"epoch {epoch}: {WORLD_SIZE} processes, test error {error:.4f}", flush=True)
        # the progress of the job, for paddle status and report.html
        print(f"Pass={epoch} Batch={STEPS} Passes={EPOCHS} error={error:.4f}", flush=True)

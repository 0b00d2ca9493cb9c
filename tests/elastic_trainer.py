"""A worker of test_elastic_training: it trains, is killed once, and adds a host.

usage: elastic_trainer.py DIRECTORY BATCHES. One worker takes the file `kill` and is killed; one worker takes the file
`add` and adds a host to the file `hosts`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import paddle.elastic as hvd

DEADLINE_S = 60.0
WANTED = 4
directory, batches = Path(sys.argv[1]), int(sys.argv[2])


def take(name: str) -> bool:
    """Removes a file; returns whether this process was the first."""
    with contextlib.suppress(FileNotFoundError):
        (directory / name).unlink()
        return True
    return False


@hvd.elastic.run
def train(state: hvd.elastic.ArrayState) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while state.batch < batches:
        total = hvd.allreduce(np.full(1000, 1.0, np.float32), name="gradient")
        state.weights += total
        state.seen.append(state.batch)
        state.batch += 1
        if state.batch == batches // 4 and hvd.rank() == 1 and take("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()
        if state.batch >= batches // 2:  # the new workers may join one after the other
            if hvd.rank() == 0 and take("add"):
                with (directory / "hosts").open("a") as file:
                    file.write("127.0.0.2:1\n")
            while hvd.size() < WANTED:
                if time.monotonic() > deadline:
                    raise SystemExit("the host did not join")
                state.check_host_updates()


hvd.init()
state = hvd.elastic.ArrayState(weights=np.zeros(1000, np.float32), seen=[], batch=0)
train(state)
result = {"size": hvd.size(), "weight": float(state.weights[0]), "seen": state.seen}
(directory / f"result.{hvd.rank()}").write_text(json.dumps(result))

"""Functions for tests of `paddle_cluster.elastic.launch.run`, which workers import by their names."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import paddle.elastic as hvd

DEADLINE_S = 60.0


def place() -> tuple[int, int]:
    """Return rank and size; the function has no elastic state."""
    hvd.init()
    try:
        return hvd.rank(), hvd.size()
    finally:
        hvd.shutdown()


def add(values: np.ndarray, *, more: float = 0.0) -> dict[str, object]:
    """Add without collectives, and print a line."""
    rank = int(os.environ["HOROVOD_RANK"])
    print(f"adds {rank}")
    print(f"warns {rank}", file=sys.stderr)
    return {"rank": rank, "sum": values + more}


def train(directory: str, batches: int, kills: list[int]) -> dict[str, object]:
    """Train in a loop that continues after failures; in each batch of `kills`, the highest rank is killed once."""
    hvd.init()
    state = hvd.elastic.ArrayState(weights=np.zeros(4, np.float32), batch=0)
    train_state(state, Path(directory), batches, kills)
    return {"weight": float(state.weights[0]), "batch": state.batch}


@hvd.elastic.run
def train_state(state: hvd.elastic.ArrayState, directory: Path, batches: int, kills: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while state.batch < batches:
        mark = directory / f"killed-{state.batch + 1}"
        while state.batch + 1 in kills and not mark.exists() and hvd.size() == 1:
            assert time.monotonic() < deadline, "no new worker has joined"
            state.check_host_updates()  # with the last worker the state would be lost
        state.weights += hvd.allreduce(np.ones(4, np.float32), name="gradient")
        state.batch += 1
        if state.batch in kills and hvd.rank() == hvd.size() - 1 and not mark.exists():
            mark.touch()
            os._exit(9)
        state.commit()

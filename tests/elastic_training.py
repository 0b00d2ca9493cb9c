"""A training loop for tests of `paddle elastic run`: all workers count the steps, and one worker dies in step 3.

    python elastic_training.py STEPS

In step 3 the worker that began as rank 1 dies, once. In step 6 rank 0 adds a slot to the file `hosts`; the loop
continues until the third worker has joined.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from paddle_cluster.elastic.process import operations as hvd
from paddle_cluster.elastic.state import ObjectState, run


def train(state: ObjectState, steps: int) -> float:
    while state.step < steps or hvd.size() < 3:
        state.total += float(hvd.allreduce(np.ones(4, np.float32), name="ones")[0])
        state.step += 1
        if state.step == 3 and os.environ["HOROVOD_RANK"] == "1" and not Path("died").exists():
            Path("died").touch()
            os._exit(9)
        if state.step == 6 and hvd.rank() == 0:
            Path("hosts.new").write_text("localhost:3\n")
            Path("hosts.new").replace("hosts")
        state.commit()
    return state.total - state.step


def main(steps: int) -> None:
    hvd.init()
    state = ObjectState(step=0, total=0.0)
    lost = run(train)(state, steps)
    print(f"{hvd.size()} workers, steps lost or counted twice: {lost:g}")


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""A training loop for tests of agents: it continues until the file `stop` exists, and reports the workers.

python elastic_hold.py DIRECTORY

Rank 0 writes the number of workers to DIRECTORY/size; each worker writes its process id to
DIRECTORY/pids/<host>.<slot>.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import paddle.elastic as hvd


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)


@hvd.elastic.run
def train(state: hvd.elastic.ArrayState, directory: Path) -> None:
    slot = f"{os.environ['HOROVOD_HOSTNAME']}.{os.environ['HOROVOD_LOCAL_RANK']}"
    write(directory / "pids" / slot, str(os.getpid()))
    while True:
        wants_stop = float((directory / "stop").exists())
        if hvd.allreduce(np.array([wants_stop]), name="stop", op=hvd.Max)[0]:
            return
        state.steps += hvd.allreduce(np.ones(1), name="step", op=hvd.Sum) / hvd.size()
        if hvd.rank() == 0:
            write(directory / "size", str(hvd.size()))
        state.commit()
        time.sleep(0.02)


def main() -> None:
    hvd.init()
    state = hvd.elastic.ArrayState(steps=np.zeros(1))
    train(state, Path(sys.argv[1]))
    print(f"{int(state.steps[0])} steps on {os.environ['HOROVOD_HOSTNAME']}")


if __name__ == "__main__":
    main()

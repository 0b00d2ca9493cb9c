"""A worker for the integration tests of Horovod: hosts change and workers fail at given epochs and batches, not times.

usage: elastic_schedule.py DIRECTORY; DIRECTORY/schedule.json is a Schedule as JSON. When an epoch begins, rank 0 writes
its hosts to DIRECTORY/hosts, and all workers wait until there are as many workers as the epoch needs. At the end of
every epoch, rank 0 appends a line to DIRECTORY/log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import paddle.elastic as hvd
from paddle_cluster.elastic.process.membership import WORKER

DEADLINE_S = 60.0
# hosts, sizes, leads (the host of rank 0): by epoch.  exits: by "epoch,batch" the starting ranks that fail there, each
# once.  how: of a failure.
SCHEDULE: dict[str, Any] = {
    "epochs": 3,
    "batches": 3,
    "hosts": {},
    "sizes": {},
    "leads": {},
    "exits": {},
    "how": "exception",
}


class Scheduled:
    """A worker that follows the schedule."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.schedule = SCHEDULE | json.loads((directory / "schedule.json").read_text())
        self.start_rank = int(os.environ["HOROVOD_RANK"])

    def change_hosts(self, state: Any) -> None:
        hosts = self.schedule["hosts"].get(str(state.epoch))
        if hosts is not None and hvd.rank() == 0 and self.take(f"hosts-{state.epoch}"):
            (self.directory / "new").write_text(hosts)
            (self.directory / "new").replace(self.directory / "hosts")
            if not {str(state.epoch)} & (self.schedule["sizes"].keys() | self.schedule["leads"].keys()):
                self.wait_until_seen(hosts)
        size = self.schedule["sizes"].get(str(state.epoch), hvd.size())
        deadline = time.monotonic() + DEADLINE_S
        lead = self.schedule["leads"].get(str(state.epoch))
        while hvd.size() != size or (lead and hvd.broadcast_object(os.environ["HOROVOD_HOSTNAME"]) != lead):
            assert time.monotonic() < deadline, f"{hvd.size()} workers in place of {size}"
            state.check_host_updates()

    def wait_until_seen(self, hosts: str) -> None:
        """The discovery script keeps what it has printed; the second time is behind what the first has led to."""
        for _ in range(2):
            (self.directory / "seen").unlink(missing_ok=True)
            deadline = time.monotonic() + DEADLINE_S
            while not (self.directory / "seen").exists() or (self.directory / "seen").read_text() != hosts:
                assert time.monotonic() < deadline, "the discovery script does not run"
                time.sleep(0.02)

    def fail(self, state: Any) -> None:
        place = f"{state.epoch},{state.batch}"
        if self.start_rank in self.schedule["exits"].get(place, ()) and self.take(f"exit-{place}-{self.start_rank}"):
            if self.schedule["how"] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"rank {self.start_rank} fails as the schedule says")

    def take(self, name: str) -> bool:
        """Return whether this process is the first one that takes this action."""
        try:
            (self.directory / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def log(self, state: Any) -> None:
        if hvd.rank() == 0:
            line = {
                "epoch": state.epoch,
                "batch": state.batch,
                "commits": state.commits,
                "hostname": os.environ["HOROVOD_HOSTNAME"],
                "start_rank": self.start_rank,
                "rank": hvd.rank(),
                "size": hvd.size(),
                "rendezvous": WORKER.placement.generation,
                "total": float(state.weights[0]),
            }
            with (self.directory / "log").open("a") as file:
                file.write(json.dumps(line) + "\n")


@hvd.elastic.run
def train(state: Any, scheduled: Scheduled) -> None:
    while state.epoch < scheduled.schedule["epochs"]:
        scheduled.change_hosts(state)
        while state.batch < scheduled.schedule["batches"]:
            scheduled.fail(state)
            state.weights += hvd.allreduce(np.ones(8, np.float32), name="gradient")
            state.batch += 1
            state.commits += 1
            state.commit()
        scheduled.log(state)
        state.epoch, state.batch = state.epoch + 1, 0
        state.commits += 1
        state.commit()


if __name__ == "__main__":
    hvd.init()
    arrays = hvd.elastic.ArrayState(weights=np.zeros(8, np.float32), epoch=0, batch=0, commits=0)
    train(arrays, Scheduled(Path(sys.argv[1])))

"""Hundreds of connections without the secret beside an all-reduce job, at the ports of its driver and workers."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from test_elastic_run import LIMIT_S, started
from waiting import until

FILES = 256  # limit of open files of every program of the job
STRANGERS = 400  # connections at each port; each sends a byte now and then
TIMEOUT_S = 5  # without a heartbeat for so long a worker is ended
TRAINING = """
import os, sys
from pathlib import Path
import numpy as np
from paddle_cluster.elastic.process import operations as hvd
from paddle_cluster.elastic.process.membership import WORKER
from paddle_cluster.elastic.state import ObjectState, run

def train(state):
    while not state.over:
        gradient = np.float32(state.values - hvd.rank()) * np.float32(0.01)
        if state.step < 300:
            state.values = state.values - hvd.allreduce(gradient, name="gradient")
        held = [open("data") for _ in range(60)]  # a data file must not fail for the strangers' descriptors
        for one in held:
            one.close()
        state.step += 1
        over = np.array([state.step >= 300 and Path("over").exists()], np.float32)
        state.over = bool(hvd.allreduce(over, name="over", op=hvd.Sum)[0])
        state.commit()
        Path(f"pid.{hvd.rank()}").write_text(str(os.getpid()))
    return state

hvd.init()
assert hvd.allgather_object({hvd.rank()}, unsafe_pickle=True) == [{0}, {1}]
assert hvd.broadcast_object({hvd.rank()}, 1, unsafe_pickle=True) == {1}
state = ObjectState(step=0, values=np.linspace(-1, 1, 64, dtype=np.float32), over=False)
run(train)(state)
print(state.values.tobytes().hex()[:64], WORKER.placement.generation)
"""


def list_ports(pid: int) -> list[int]:
    """The ports at which a process listens for TCP over IPv4."""
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(path.readlink()).removeprefix("socket:[").rstrip("]"))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[9] in inodes]


@contextlib.contextmanager
def strangers(ports: list[int]) -> Iterator[None]:
    """Connections from many addresses; each sends a byte every 0.2 s, and comes again when it is closed."""
    is_over = threading.Event()

    def connect(selector: selectors.BaseSelector, number: int, port: int) -> None:
        stream = socket.socket()
        stream.setblocking(False)
        stream.bind((f"127.0.{1 + number % 40}.1", 0))
        with contextlib.suppress(BlockingIOError):
            stream.connect(("127.0.0.1", port))
        selector.register(stream, selectors.EVENT_READ, (number, port))

    def attack() -> None:
        with selectors.DefaultSelector() as selector:
            for number in range(STRANGERS):
                for port in ports:
                    connect(selector, number, port)
            while not is_over.wait(0.2):
                for key, _ in selector.select(0):
                    stream: socket.socket = key.fileobj  # type: ignore[assignment]
                    with contextlib.suppress(OSError):
                        if stream.recv(100):
                            continue
                    selector.unregister(stream)
                    stream.close()
                    connect(selector, *key.data)
                for key in list(selector.get_map().values()):
                    with contextlib.suppress(OSError):
                        key.fileobj.send(b"G")  # type: ignore[union-attr]
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        yield
    finally:
        is_over.set()
        attacker.join(LIMIT_S)


def train(folder: Path, *, is_attacked: bool) -> tuple[list[str], str]:
    """Run a job of two workers; return its output, sorted, and what it has logged."""
    folder.mkdir()
    (folder / "data").touch()
    (folder / "train.py").write_text(TRAINING)
    flags = ["-np", "2", "--min-np", "2", "--heartbeat-timeout", str(TIMEOUT_S)]
    pids = [folder / "pid.0", folder / "pid.1"]
    with started(folder, *flags, worker=[sys.executable, str(folder / "train.py")]) as process:
        until(lambda: all(path.exists() and path.read_text() for path in pids), "two workers")
        if is_attacked:
            every = [process.pid, *(int(path.read_text()) for path in pids)]
            for pid in every:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
            ports = [port for pid in every for port in list_ports(pid)]
            assert len(ports) >= 3
            end = time.monotonic() + 1.5 * TIMEOUT_S
            with strangers(ports):
                until(lambda: process.poll() is not None or time.monotonic() > end, "the time of some heartbeats")
        (folder / "over").touch()
        output, log = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == 0, log
    return sorted(line.partition(":")[2] for line in output.splitlines()), log


def test_slow_connections_end_no_worker_and_take_none_of_its_descriptors(tmp_path: Path) -> None:
    """The driver had no descriptor left for heartbeats, and ended all workers; they could not open their data."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, own[1]), own[1]))
    try:
        quiet, _ = train(tmp_path / "quiet", is_attacked=False)
        attacked, log = train(tmp_path / "attacked", is_attacked=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, own)
    assert attacked == quiet, log
    assert len(set(attacked)) == 1
    assert attacked[0].endswith(" 1")

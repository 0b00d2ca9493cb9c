"""Start the servers and trainers that bench/pserver.py and bench/scale.py measure: ours, and those of the peers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from client_process import PEER_TIMEOUT, list_hosts
from interleave import Contestant
from processes import find_port

HERE = Path(__file__).parent
COUNT = 3  # number of servers, and number of trainers
SECONDS = 2.0  # approximate time for which a contestant runs before the next contestant
SEPARATE = 4  # more trainers than this are children of one process, which has imported everything once
PEERS = {"zmq": "pyzmq, no step", "sockets": "plain sockets, no step"}


def start_peer(kind: str, size: int) -> Contestant:
    """Start the servers and trainers of a peer; one trainer and one server exchange `size` bytes in each direction."""
    port = find_port(["127.0.0.1"], COUNT)
    command = [sys.executable, str(HERE / "peers.py"), kind]
    numbers = [[str(number), str(COUNT), str(port), str(size)] for number in range(COUNT)]
    return Contestant(
        PEERS[kind], [[*command, "server", *one] for one in numbers], [[*command, "trainer", *one] for one in numbers]
    )


def start_ours(
    name: str,
    kind: str,
    size: int,
    *,
    servers: int = COUNT,
    trainers: int = COUNT,
    tools: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> Contestant:
    """Start `paddle pserver` processes and their trainers; `size` is the number of parameters or of rows.

    Args: kind: a kind of bench/client_process.py.  tools: the words before `-m paddle` of the first server, and before
        the script of the first trainer, in place of those that only run Python.
    """
    hosts = list_hosts(servers)
    port = find_port(hosts)
    serving = ["-m", "paddle", "pserver", f"--port={port}", "--ports_num=1", f"--num_gradient_servers={trainers}"]
    shape = [str(trainers), str(servers), str(port), str(size)]
    numbers = [str(number) for number in range(trainers)] if trainers <= SEPARATE else [f"0-{trainers - 1}"]
    of_servers, of_trainers = (
        [tool or [sys.executable], *[[sys.executable]] * (count - 1)]
        for tool, count in zip(tools, (servers, len(numbers)), strict=True)
    )
    return Contestant(
        name,
        [[*python, *serving, f"--nics={host}"] for python, host in zip(of_servers, hosts, strict=True)],
        [
            [*python, str(HERE / "client_process.py"), kind, one, *shape]
            for python, one in zip(of_trainers, numbers, strict=True)
        ],
        {"PADDLE_PEER_TIMEOUT": f"{PEER_TIMEOUT:g}"},
    )


def find_rounds(group: Contestant, seconds: float = SECONDS) -> int:
    """Return how many rounds take about this time."""
    group.run(3)
    return max(3, int(seconds * group.run(5)))

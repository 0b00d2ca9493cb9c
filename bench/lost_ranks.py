"""Measure how soon the ranks of an all-reduce raise an error after another rank is killed, frozen or stopped.

    python bench/lost_ranks.py [--turns N]

Three processes of this machine repeatedly add an array by all-reduce. One process is sent SIGKILL, SIGSTOP or SIGTERM,
and the others print the time at which they raise an error. The limit is 5 s.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the ranks, which also run this script, import the project

from machine import describe_machine, spread

BOUND_S = 5.0
WAIT_S = 60.0
HARMS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "stopped": signal.SIGTERM}


def serve(rank: int, ports: list[int], with_memory: bool) -> None:
    """Run as a rank; print "runs" after some rounds, and the time of the error in seconds of `time.monotonic`."""
    import numpy as np

    from paddle_cluster.elastic.collectives.forming import form
    from paddle_cluster.elastic.collectives.joining import GroupPlan
    from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
    from paddle_cluster.elastic.errors import HorovodInternalError

    class FixedStore:
        def put(self, scope: str, key: str, value: bytes) -> None: ...

        def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
            return json.dumps({"host": "127.0.0.1", "port": ports[int(key)]}).encode() if key.isdigit() else None

    plan = GroupPlan(rank, len(ports), "bench", secret="secret", timeout=WAIT_S, port=ports[rank])
    group = form(plan, FixedStore(), near=None if with_memory else ())
    array = np.ones(60_000, np.float32)
    try:
        for turn in range(1 << 60):
            group.wait(group.submit(CollectiveKind.ALLREDUCE, array, argument=Reduction.SUM))
            if turn == 3:
                print("runs", flush=True)
    except HorovodInternalError:
        print(time.monotonic(), flush=True)


def measure(harm: int, *, with_memory: bool) -> float:
    """Return the seconds until the last surviving rank raises an error."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in holders]
    for one in holders:
        one.close()
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", json.dumps([rank, ports, with_memory])],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        for one in ranks:
            assert one.stdout is not None
            assert one.stdout.readline() == "runs\n"
        began = time.monotonic()
        ranks[1].send_signal(harm)
        return max(float(ranks[rank].communicate(timeout=WAIT_S)[0]) for rank in (0, 2)) - began
    finally:
        for one in ranks:
            one.kill()
            one.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        serve(*json.loads(options.rank))
        return 0
    print(describe_machine())
    slowest = 0.0
    for name, harm in HARMS.items():
        for way, with_memory in (("shared memory", True), ("connections", False)):
            times = [measure(harm, with_memory=with_memory) for _ in range(options.turns)]
            slowest = max(slowest, *times)
            print(f"{name}, over {way}: {spread(times)} s until the last survivor raises", flush=True)
    return int(slowest > BOUND_S)


if __name__ == "__main__":
    sys.exit(main())

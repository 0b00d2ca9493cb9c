"""Measure collectives among processes of this machine, by the collectives of this project and by gloo of torch.

    python bench/allreduce.py [--torch PYTHON] [--rounds N] [--kinds | --many]

Every rank has an array of float32. In an all-reduce it receives the average of all arrays, in a reduce-scatter its part
of the average, and in an all-to-all a part of every array; of gloo only the all-reduce is measured. The collectives of
this project exchange data in three ways. In the way "memory", all processes share memory. In the way "connections",
they use TCP connections. In the way "two hosts", each half of the processes shares memory, and TCP connections join the
halves. The ways run in alternation, so that a drift of the machine's speed does not change their ratios. Without torch,
gloo is not measured; `--torch` names the Python of an environment with torch. The ranks of a way are forked from one
process that has imported what they need: 64 imports of torch alone would take two minutes of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))  # the ranks, which also run this script, import the project

from interleave import Contestant, Rounds, run_interleaved, serve_rounds
from machine import describe_machine, spread
from processes import find_peer

SIZES = {"19.9 MB": 4_975_000, "0.24 MB": 60_000, "1 MB": 250_000, "4 KB": 1_000}
LOOPBACK_BYTES = 1 << 30


def serve_ranks(way: str, ports: list[int], elements: int, kind: str) -> None:
    """Fork the ranks of one way, and let all of them run the rounds of each line of stdin. `kind`: see `serve_ours`."""
    if way == "gloo":
        import torch.distributed  # noqa: F401
    else:
        import paddle_cluster.elastic.collectives.forming  # noqa: F401
    ranks = [fork_rank(way, rank, ports, elements, kind) for rank in range(len(ports))]

    def stop(*_: object) -> None:
        raise SystemExit(f"bench: a rank of '{way}' has ended")  # the others may wait for it without end

    signal.signal(signal.SIGCHLD, stop)
    try:
        for line in sys.stdin:
            for _, given, _ in ranks:
                given.write(line)
            print(Rounds.join([Rounds.parse(results.readline()) for *_, results in ranks]), flush=True)
    except BaseException:
        for pid, *_ in ranks:
            os.kill(pid, signal.SIGKILL)
        raise
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for _, given, _ in ranks:
        given.close()
    for pid, *_ in ranks:
        os.waitpid(pid, 0)


def fork_rank(way: str, rank: int, ports: list[int], elements: int, kind: str) -> tuple[int, TextIO, TextIO]:
    """Fork a rank; return its pid, its stdin and its stdout."""
    (theirs, given), (results, own) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(theirs, 0)
        os.dup2(own, 1)
        os.closerange(3, own + 1)  # also the pipes of earlier ranks, which would have no end here
        sys.stdin = os.fdopen(0, closefd=False)
        if way == "gloo":
            serve_gloo(rank, ports, elements)
        else:
            serve_ours(way, rank, ports, elements, kind)
        os._exit(0)
    os.close(theirs)
    os.close(own)
    return pid, os.fdopen(given, "w", 1), os.fdopen(results)


def serve_ours(way: str, rank: int, ports: list[int], elements: int, kind: str) -> None:
    """Run as a rank of this project's collectives. `kind`: the name of a `CollectiveKind`."""
    import numpy as np

    from paddle_cluster.elastic.collectives.forming import form
    from paddle_cluster.elastic.collectives.joining import GroupPlan
    from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction

    class FixedStore:
        def put(self, scope: str, key: str, value: bytes) -> None: ...

        def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
            return json.dumps({"host": "127.0.0.1", "port": ports[int(key)]}).encode() if key.isdigit() else None

    half = len(ports) // 2
    near = {"memory": None, "connections": (), "two hosts": range(half) if rank < half else range(half, len(ports))}
    plan = GroupPlan(rank, len(ports), "bench", secret="secret", timeout=120.0, port=ports[rank])
    group = form(plan, FixedStore(), near=near[way])
    array = np.ones(elements, np.float32)
    splits = [elements // len(ports)] * len(ports) if kind == "ALLTOALL" else None
    output = array if kind == "ALLREDUCE" else None

    def run() -> None:
        argument = 0 if splits else Reduction.AVERAGE
        handle = group.submit(CollectiveKind[kind], array, argument=argument, output=output, splits=splits)
        group.wait(handle)

    serve_rounds(run)
    group.leave()


def serve_gloo(rank: int, ports: list[int], elements: int) -> None:
    """Run as a rank of gloo's all-reduce."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=len(ports))
    array = torch.full((elements,), 1e-30)
    serve_rounds(lambda: dist.all_reduce(array))


def find_ports(count: int) -> list[int]:
    """Return free ports below those that Linux gives to outgoing connections.

    64 ranks make thousands of connections before the last rank listens, and one of them would have its port.
    """
    holders: list[socket.socket] = []
    for port in random.sample(range(10_000, 32_000), 4 * count):
        with contextlib.suppress(OSError):
            holders.append(socket.create_server(("127.0.0.1", port)))
        if len(holders) == count:
            break
    ports = [one.getsockname()[1] for one in holders]
    for one in holders:
        one.close()
    return ports


def contest(way: str, size: int, elements: int, python: str, kind: str = "ALLREDUCE") -> Contestant:
    """Start the ranks that exchange data in one way, and return them."""
    ports = find_ports(size)
    python = python if way == "gloo" else sys.executable
    command = [python, __file__, "--ranks", json.dumps([way, ports, elements, kind])]
    return Contestant(way if kind == "ALLREDUCE" else f"{kind.lower()}, {way}", [], [command])


def measure_loopback() -> float:
    """Return the speed of one connection on this machine, in bytes per second."""
    listener = socket.create_server(("127.0.0.1", 0))
    chunk = bytes(1 << 20)

    def send() -> None:
        with socket.create_connection(listener.getsockname()) as stream:
            for _ in range(LOOPBACK_BYTES >> 20):
                stream.sendall(chunk)

    thread = threading.Thread(target=send)
    thread.start()
    stream, _ = listener.accept()
    room = bytearray(1 << 20)
    began = time.perf_counter()
    while stream.recv_into(room):
        pass
    seconds = time.perf_counter() - began
    thread.join()
    stream.close()
    listener.close()
    return LOOPBACK_BYTES / seconds


def compare(ways: list[str], size: int, name: str, python: str | None, rounds: int, repeats: int) -> None:
    """Measure and print the all-reduce of one array among `size` processes in each way."""
    ways = [*ways, *(["gloo"] if python else [])]
    contestants = [contest(way, size, SIZES[name], python or "") for way in ways]
    try:
        run_interleaved(contestants, rounds, repeats)
    finally:
        for one in contestants:
            one.close()
    for one in contestants:
        times = [1000 / rate for rate in one.rates]
        line = f"{size} processes, {name}, {one.name}: {spread(times)} ms"
        if python and one.name != "gloo":
            line += f"; {spread([a / b for a, b in zip(one.rates, contestants[-1].rates, strict=True)])} x gloo"
        print(line, flush=True)


def compare_kinds(kinds: list[str], size: int, elements: int, rounds: int, repeats: int) -> None:
    """Measure and print collectives of one array among `size` processes, in shared memory and over connections."""
    contestants = [contest(way, size, elements, "", kind) for kind in kinds for way in ("memory", "connections")]
    try:
        run_interleaved(contestants, rounds, repeats)
    finally:
        for one in contestants:
            one.close()
    for one in contestants:
        times = [1000 / rate for rate in one.rates]
        print(f"{size} processes, {4e-6 * elements:.1f} MB, {one.name}: {spread(times)} ms", flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--kinds", action="store_true", help="measure only the other collectives")
    parser.add_argument("--many", action="store_true", help="measure only 64 processes with 1 MB each")
    parser.add_argument("--ranks", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ranks:
        serve_ranks(*json.loads(args.ranks))
        return
    print(describe_machine())
    print(f"one connection of the loopback: {measure_loopback() / 1e9:.2f} GB/s")
    python = find_peer(args.torch, "torch.distributed", "torch")
    if args.many:
        compare(["memory", "connections"], 64, "1 MB", python, 2, 3)
        return
    for name, factor in (("19.9 MB", 1), ("0.24 MB", 10), ("4 KB", 20)) if not args.kinds else ():
        compare(["memory", "connections"], 3, name, python, args.rounds * factor, args.repeats)
    if not args.kinds:
        compare(["connections", "two hosts"], 4, "19.9 MB", python, args.rounds, args.repeats)
    for size in (2, 4):
        compare_kinds(["ALLREDUCE", "REDUCESCATTER"], size, 5_000_000, args.rounds, args.repeats)
        compare_kinds(["ALLTOALL"], size, 8_000_000, args.rounds, args.repeats)


if __name__ == "__main__":
    main()

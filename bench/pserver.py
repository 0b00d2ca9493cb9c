"""Measure how fast `paddle pserver` is, compared with pyzmq, plain sockets and gloo that transfer the same bytes.

usage: bench/pserver.py [--torch PYTHON] [--only large small rows step growth] [--repeats N]

    large   3 servers and 3 trainers on the loopback interface: each trainer sends 19.9 MB and receives 19.9 MB, and the
            servers take an SGD step; with gloo of torch.distributed, 3 processes add arrays of 19.9 MB by an all-reduce
    small   the programs of `large`, with 0.24 MB instead of 19.9 MB
    rows    a sparse table with 10 million rows of 16 numbers; in each batch a trainer pushes 20,000 different rows, and
            pulls as many for its next batch in the same exchange
    step    an in-place step of SGD with momentum on 100 million float32, by a pool of two threads and by a loop in C
            with two threads
    growth  rounds per second with growing numbers of parameters, rows of the table, and trainers

The programs run in alternation. pyzmq, plain sockets and gloo take no optimiser step, and pyzmq and plain sockets do
not add gradients. `--torch` names the Python of an environment with torch; without torch gloo is not measured. The
servers are `paddle pserver` processes, and the trainers are processes with the client of this project. In the cases
"own server shared" each trainer exchanges data with one of the three servers through shared memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import ctypes
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence

import numpy as np
from allreduce import contest
from client_process import ROWS_OF_A_BATCH, WIDTH
from interleave import Contestant, run_interleaved
from machine import describe_machine, spread
from processes import find_peer

from paddle_base.runtime.processor.thread_pool import start_thread_pool
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard

HERE = Path(__file__).parent
COUNT = 3  # number of servers, and number of trainers
LARGE, SMALL = 4_970_496, 60_002  # numbers of parameters of recommendation and of quick_start's lr
TABLE_ROWS = 10_000_000
STEP_ELEMENTS = 100_000_000
SECONDS = 2.0  # approximate time for which a contestant runs before the next contestant
HEADER = """
| what | rounds/s | of plain sockets | of pyzmq | of gloo | peak of a server | of a trainer |
|---|---|---|---|---|---|---|"""


def find_port(count: int) -> int:
    """Return the first of `count` consecutive ports that are free at this moment on the addresses in use."""
    while True:
        first = random.SystemRandom().randrange(20000, 32000)
        try:
            for host in range(1, COUNT + 1):
                for port in range(first, first + count):
                    with socket.socket() as one:
                        one.bind((f"127.0.0.{host}", port))
        except OSError:
            continue
        return first


def start_peer(kind: str, size: int) -> Contestant:
    """Start the servers and trainers of a peer; one trainer and one server exchange `size` bytes in each direction."""
    port = find_port(COUNT)
    command = [sys.executable, str(HERE / "peers.py"), kind]
    numbers = [[str(number), str(COUNT), str(port), str(size)] for number in range(COUNT)]
    name = {"zmq": "pyzmq, no step", "sockets": "plain sockets, no step"}[kind]
    return Contestant(
        name, [[*command, "server", *one] for one in numbers], [[*command, "trainer", *one] for one in numbers]
    )


def start_ours(name: str, kind: str, size: int, *, servers: int = COUNT, trainers: int = COUNT) -> Contestant:
    """Start `paddle pserver` processes and their trainers; `size` is the number of parameters or of rows."""
    port = find_port(1)
    server = [sys.executable, "-m", "paddle", "pserver", f"--port={port}", "--ports_num=1"]
    client = [sys.executable, str(HERE / "client_process.py"), kind]
    shape = [str(trainers), str(servers), str(port), str(size)]
    return Contestant(
        name,
        [[*server, f"--nics=127.0.0.{number + 1}", f"--num_gradient_servers={trainers}"] for number in range(servers)],
        [[*client, str(number), *shape] for number in range(trainers)],
    )


def find_rounds(group: Contestant) -> int:
    """Return how many rounds take about SECONDS."""
    group.run(3)
    return max(3, int(SECONDS * group.run(5)))


def bench_exchange(parameters: int, repeats: int, python: str | None) -> None:
    """Print a row for each contestant that exchanges this number of parameters.

    Args: python: path of a Python that has torch, or None.
    """
    size = 4 * parameters // COUNT
    peers = [start_peer("sockets", size), start_peer("zmq", size)]
    if python:
        peers.append(contest("gloo", COUNT, parameters, python))
    ours = [
        start_ours("paddle pserver, SGD, own server shared", "dense-shared", parameters),
        start_ours("paddle pserver, SGD, all over sockets", "dense", parameters),
    ]
    groups = [*peers, *ours]
    try:
        run_interleaved(groups, find_rounds(ours[0]), repeats)
        print(f"\n{4 * parameters / 1e6:.2f} MB each way for each of {COUNT} trainers, {COUNT} servers\n{HEADER}")
        for group in groups:
            ratios = [spread(divide(group.rates, peer.rates)) for peer in peers]
            ratios += [""] * (3 - len(peers))
            server, trainer = group.peaks()
            cells = [
                group.name,
                spread(group.rates),
                *ratios,
                f"{server:.0f} MB" if server else "",
                f"{trainer:.0f} MB",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)
    finally:
        for group in groups:
            group.close()


def divide(rates: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of the two rates of each repeat."""
    return [one / other for one, other in zip(rates, others, strict=True)]


def bench_rows(repeats: int) -> None:
    """Print how many rows per second are pulled and pushed, compared with pyzmq that transfers as many bytes."""
    count = min(ROWS_OF_A_BATCH, TABLE_ROWS // 2)
    # a push sends row numbers, rows and the row numbers of the next batch, and receives rows; pyzmq transfers
    # half of all these bytes in each direction
    there = count * (4 + 4 * WIDTH) // COUNT
    groups = [
        start_peer("zmq", there),
        start_ours("own server shared", "rows-shared", TABLE_ROWS),
        start_ours("all over sockets", "rows", TABLE_ROWS),
    ]
    try:
        run_interleaved(groups, find_rounds(groups[1]), repeats)
        peer, *both = ([COUNT * count * rate / 1e6 for rate in group.rates] for group in groups)
        print(f"\ntable of {TABLE_ROWS:,} x {WIDTH}, {count:,} different rows a batch and trainer, SGD")
        print(f"million rows a second, as many bytes each way by pyzmq: {spread(peer)}")
        for group, ours in zip(groups[1:], both, strict=True):
            server, trainer = group.peaks()
            print(
                f"pulled and pushed again, {group.name}: {spread(ours)}; of pyzmq {spread(divide(ours, peer))}; "
                f"peak of a server {server:.0f} MB, of a trainer {trainer:.0f} MB",
                flush=True,
            )
    finally:
        for group in groups:
            group.close()


def bench_step(repeats: int) -> None:
    """Print how long a step of the shard takes, and how long the loop in C takes."""
    with tempfile.TemporaryDirectory() as scratch:
        library = Path(scratch, "fused.so")
        flags = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"]
        subprocess.run(["gcc", *flags, str(HERE / "fused.c"), "-o", str(library)], check=True)
        fused = ctypes.CDLL(str(library)).step
    weight = [ParameterSpec("w", STEP_ELEMENTS, momentum=0.9)]
    shard = DenseShard(
        weight, partition.whole(weight), Optimization("momentum", 1e-6), per_parameter=True, pool=start_thread_pool(2)
    )
    gradient = np.random.default_rng(0).standard_normal(STEP_ELEMENTS, np.float32)
    values, velocity = np.zeros(STEP_ELEMENTS, np.float32), np.zeros(STEP_ELEMENTS, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (values, velocity, gradient)]
    ours, peer = [], []
    for number in range(5 * repeats + 2):
        times = [time.perf_counter()]
        shard.step(gradient, 1)
        times.append(time.perf_counter())
        fused(*pointers, ctypes.c_size_t(STEP_ELEMENTS), ctypes.c_float(1e-6), ctypes.c_float(0.9))
        times.append(time.perf_counter())
        if number > 1:
            ours.append(times[1] - times[0])
            peer.append(times[2] - times[1])
    if not np.array_equal(shard.values, values):
        raise SystemExit("bench/pserver.py: the results of the shard and of the fused loop differ")
    print(f"\nmomentum in place on {STEP_ELEMENTS:,} float32, two threads, milliseconds")
    print(
        f"pserver.store.shard {spread([1e3 * one for one in ours])}, fused loop {spread([1e3 * one for one in peer])}"
    )
    print(f"the loop's time / ours: {spread(divide(peer, ours))}", flush=True)


def bench_growth(repeats: int) -> None:
    """Print the rounds per second for several sizes."""
    print("\n| what grows | to | rounds/s | peak of a server | of a trainer |\n|---|---|---|---|---|")
    runs = [("parameters", 10**power, "dense-shared", COUNT) for power in range(4, 9)]
    runs += [("rows of the table", 10**power, "rows", COUNT) for power in range(5, 9)]
    runs += [("trainers (10,000 parameters)", 10_000, "dense", trainers) for trainers in (1, 4, 16, 64)]
    for what, size, kind, trainers in runs:
        group = start_ours(what, kind, size, trainers=trainers)
        try:
            run_interleaved([group], find_rounds(group), repeats)
            server, trainer = group.peaks()
            to = trainers if kind == "dense" else size
            print(f"| {what} | {to:,} | {spread(group.rates)} | {server:.0f} MB | {trainer:.0f} MB |", flush=True)
        finally:
            group.close()


def main() -> None:
    """Print the machine, and the measurements that the options select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    benches = ("large", "small", "rows", "step", "growth")
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--only", nargs="+", choices=benches, default=benches)
    parser.add_argument("--repeats", type=int, default=7, help="runs of each program after its first run")
    options = parser.parse_args()
    print(describe_machine())
    exchanges = [size for name, size in (("large", LARGE), ("small", SMALL)) if name in options.only]
    python = find_peer(options.torch, "torch.distributed", "torch") if exchanges else None
    for parameters in exchanges:
        bench_exchange(parameters, options.repeats, python)
    if "rows" in options.only:
        bench_rows(options.repeats)
    if "step" in options.only:
        bench_step(options.repeats)
    if "growth" in options.only:
        bench_growth(max(1, options.repeats // 2))
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

"""Measure how fast `paddle pserver` is, compared with pyzmq, plain sockets and gloo that transfer the same bytes.

usage: bench/pserver.py [--torch PYTHON] [--only large small tiny rows step async growth] [--repeats N]
       bench/pserver.py --profile [--only large small tiny] [--top N]

    large   3 servers and 3 trainers on the loopback interface: each trainer sends 19.9 MB and receives 19.9 MB, and the
            servers take an SGD step; with gloo of torch.distributed, 3 processes add arrays of 19.9 MB by an all-reduce
    small   the programs of `large`, with 0.24 MB instead of 19.9 MB
    tiny    the programs of `large`, with 4 kB instead of 19.9 MB
    rows    a sparse table with 10 million rows of 16 numbers; in each batch a trainer pushes 20,000 different rows, and
            pulls as many for its next batch in the same exchange
    step    an in-place step of SGD with momentum on 100 million float32, by a pool of two threads and by a loop in C
            with two threads
    async   asynchronous training of 16 trainers: the processor's time of a push and the pull of its answer
    growth  rounds per second with growing numbers of parameters, rows of the table, and trainers

The programs run in alternation. pyzmq, plain sockets and gloo take no optimiser step, and pyzmq and plain sockets do
not add gradients. `--torch` names the Python of an environment with torch; without torch gloo is not measured. The
servers are `paddle pserver` processes, and the trainers are processes with the client of this project. In the cases
"own server shared" each trainer exchanges data with one of the three servers through shared memory.

A message is the request of one trainer to one server, with its answer: a push and the pull of the new values. Its
"processor us" are the microseconds of the processor that one server, and one trainer, spends on a message. They contain
the kernel's time, and hold on a busy machine, where rounds per second do not.

`--profile` measures no rates. It runs a server and a trainer under a tool, and prints what one message costs each of
them: the calls of Python (cProfile), and the instructions outside of the kernel (perf, or callgrind of valgrind where
the machine counts no instructions). `--top N` also prints the N functions with most calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence

import numpy as np
from allreduce import contest
from client_process import ROWS_OF_A_BATCH, WIDTH
from contestants import COUNT, find_rounds, start_ours, start_peer
from interleave import Contestant, run_interleaved
from machine import describe_machine, show_bytes, spread
from message_profile import print_profiles
from processes import find_peer

from paddle_base.runtime.processor.thread_pool import start_thread_pool
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard

HERE = Path(__file__).parent
# numbers of parameters: of recommendation, of quick_start's lr, and of 4 kB
EXCHANGES = {"large": 4_970_496, "small": 60_002, "tiny": 1_024}
TABLE_ROWS = 10_000_000
PROFILED_ROWS = 1_000_000  # of the table under a profiler, whose programs start slowly
STEP_ELEMENTS = 100_000_000
ASYNC_TRAINERS, ASYNC_PARAMETERS = 16, 10_000
MANY = (1, 4, 16, 64, 256)  # numbers of trainers
HEADER = """
| what | rounds/s | of plain sockets | of pyzmq | of gloo | processor us of a server | of a trainer | server at most | \
trainer at most |
|---|---|---|---|---|---|---|---|---|"""


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
        print(f"\n{show_bytes(parameters)} each way for each of {COUNT} trainers, {COUNT} servers\n{HEADER}")
        for group in groups:
            ratios = [spread(divide(group.rates, peer.rates)) for peer in peers]
            ratios += [""] * (3 - len(peers))
            server, trainer = group.peaks()
            peaks = [f"{server:.0f} MB" if server else "", f"{trainer:.0f} MB"]
            cells = [group.name, spread(group.rates), *ratios, *show_costs(group, COUNT * COUNT), *peaks]
            print(f"| {' | '.join(cells)} |", flush=True)
    finally:
        for group in groups:
            group.close()


def show_costs(group: Contestant, messages: int) -> list[str]:
    """Return the processor's microseconds of a message, of a server and of a trainer; without servers the first is
    empty.

    Args: messages: number of messages in a round of all trainers and servers.
    """
    servers, trainers = ([1e6 * part / messages for part in parts] for parts in zip(*group.spent, strict=True))
    return [spread(servers) if any(servers) else "", spread(trainers)]


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


def bench_async(repeats: int) -> None:
    """Print what a push and its pull cost in asynchronous training, where every push is a step of its own."""
    group = start_ours("async", "async", ASYNC_PARAMETERS, trainers=ASYNC_TRAINERS)
    try:
        run_interleaved([group], find_rounds(group), repeats)
        messages = ASYNC_TRAINERS * COUNT
        server, trainer = show_costs(group, messages)
        print(f"\nasynchronous, {ASYNC_TRAINERS} trainers, {COUNT} servers, {ASYNC_PARAMETERS:,} parameters, SGD")
        print(f"pushes a second of all: {spread([messages * rate for rate in group.rates])}")
        print(f"processor us of a push and its pull: server {server}, trainer {trainer}", flush=True)
    finally:
        group.close()


def bench_growth(repeats: int) -> None:
    """Print the rounds per second for several sizes."""
    print(
        "\n| what grows | to | rounds/s | processor us of a server | of a trainer | peak of a server | of a trainer |"
    )
    print("|---|---|---|---|---|---|---|")
    runs = [("parameters", 10**power, "dense-shared", COUNT) for power in range(4, 9)]
    runs += [("rows of the table", 10**power, "rows", COUNT) for power in range(5, 9)]
    runs += [("trainers (10,000 parameters)", 10_000, "dense", trainers) for trainers in MANY]
    for what, size, kind, trainers in runs:
        group = start_ours(what, kind, size, trainers=trainers)
        try:
            run_interleaved([group], find_rounds(group), repeats)
            server, trainer = group.peaks()
            to = trainers if kind == "dense" else size
            cells = [what, f"{to:,}", spread(group.rates), *show_costs(group, trainers * COUNT)]
            print(f"| {' | '.join([*cells, f'{server:.0f} MB', f'{trainer:.0f} MB'])} |", flush=True)
        finally:
            group.close()


def main() -> None:
    """Print the machine, and the measurements that the options select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    benches = (*EXCHANGES, "rows", "step", "async", "growth")
    parser.add_argument("--torch", default=sys.executable, help="path of a Python that has torch")
    parser.add_argument("--only", nargs="+", choices=benches, default=benches)
    parser.add_argument("--repeats", type=int, default=7, help="runs of each program after its first run")
    parser.add_argument("--profile", action="store_true", help="count what a message costs instead of measuring rates")
    parser.add_argument("--top", type=int, default=0, help="with --profile: number of functions to print")
    options = parser.parse_args()
    print(describe_machine())
    exchanges = {name: size for name, size in EXCHANGES.items() if name in options.only}
    if options.profile:
        profiled = [("dense", size, size) for size in exchanges.values()]
        if "rows" in options.only:
            profiled.append(("rows", PROFILED_ROWS, ROWS_OF_A_BATCH * (WIDTH + 1)))
        print_profiles(profiled, options.top)
        return
    python = find_peer(options.torch, "torch.distributed", "torch") if exchanges else None
    for parameters in exchanges.values():
        bench_exchange(parameters, options.repeats, python)
    if "rows" in options.only:
        bench_rows(options.repeats)
    if "step" in options.only:
        bench_step(options.repeats)
    if "async" in options.only:
        bench_async(options.repeats)
    if "growth" in options.only:
        bench_growth(max(1, options.repeats // 2))
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

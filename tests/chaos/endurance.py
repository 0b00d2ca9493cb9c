"""`python -m chaos.endurance`: many trainers on few servers for long; memory must not grow, no round may be lost.

Every trainer pushes whole numbers that depend on its id and the round, so the sum over all trainers and all rounds so
far is known exactly. The trainer checks each element of this sum after every round. Trainers are threads in a few
processes, each with its own client; the servers are processes of `paddle pserver`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from chaos.processes import run_until_interrupted, supervised
from paddle_cluster.localcluster.pods.pause import descendants
from pserver.client.client import Client
from pserver.optim.settings import Optimization, ParameterSpec

ROOT = Path(__file__).parents[2]
ELEMENTS = 5000
ROUNDS_A_PASS = 50
PROCESSES = 4
PEER_TIMEOUT = 60.0  # seconds; long, because 64 trainers and 4 servers may share few cores
READY_BOUND = 60.0
END_BOUND = 120.0
SAMPLE_INTERVAL = 1.0
MOST_GROWTH = 0.02  # maximum relative growth of a server's memory from the second to the last fifth of the time
MOST_GROWTH_KB = 1024


# ----- A trainer -----


def gradient_of(trainer: int, number: int) -> np.ndarray:
    """Return the gradient of a trainer in a round (from 0): (ELEMENTS,) float32, whole numbers of at most 4 digits.

    For every trainer the sum over 26 rounds is zero, so the sums stay small enough to be exact in float32.
    """
    wave = (7 * number) % 13 - 6
    sign = 1 - 2 * (number % 2)
    gradient = ((trainer + 1) * wave + sign * (np.arange(ELEMENTS) % 5 - 2)).astype(np.float32)
    gradient[0] = 0.0  # trainer 0 marks the last round in this element
    return gradient


def sum_of(trainers: int, number: int) -> np.ndarray:
    """Return the sum of all trainers' gradients in a round: (ELEMENTS,) float64."""
    total = trainers * (trainers + 1) // 2 * ((7 * number) % 13 - 6)
    sums = total + trainers * (1 - 2 * (number % 2)) * (np.arange(ELEMENTS) % 5 - 2).astype(np.float64)
    sums[0] = 0.0
    return sums


def train(trainer: int, trainers: int, services: Sequence[tuple[str, int]], until: float) -> int:
    """Train until a time (of time.time) and return the number of rounds; trainer 0 announces the last round.

    Raises: AssertionError: the values are not the sum of all rounds so far.
    """
    client = Client(
        services,
        trainer_id=trainer,
        num_trainers=trainers,
        peer_timeout=PEER_TIMEOUT,
        connect_timeout=READY_BOUND,
        wait_timeout=END_BOUND,
    )
    client.join([ParameterSpec("w", ELEMENTS)], Optimization("momentum", 1.0))
    values = np.zeros(ELEMENTS, np.float32)
    expected = np.zeros(ELEMENTS)
    client.initialise(values)
    rounds, is_last = 0, False
    while not is_last:
        client.start_pass()
        for _ in range(ROUNDS_A_PASS):
            gradient = gradient_of(trainer, rounds)
            if trainer == 0 and rounds % ROUNDS_A_PASS == ROUNDS_A_PASS - 1 and time.time() >= until:
                gradient[0] = 1.0
            client.push_pull(gradient, values, 1)
            expected -= sum_of(trainers, rounds)
            rounds += 1
            is_last = bool(values[0] == -1.0)
            expected[0] = values[0]
            wrong = int((values != expected).sum())
            if wrong:
                raise AssertionError(f"trainer {trainer}: {wrong} of {ELEMENTS} values are wrong after round {rounds}")
        client.finish_pass(values)
    client.goodbye()
    return rounds


def run_worker(first: int, count: int, trainers: int, services: Sequence[tuple[str, int]], until: float) -> None:
    """Run some trainers in threads and print their round counts as JSON."""
    with ThreadPoolExecutor(count) as pool:
        rounds = pool.map(lambda trainer: train(trainer, trainers, services, until), range(first, first + count))
        print(json.dumps({first + place: number for place, number in enumerate(rounds)}), flush=True)


# ----- All trainers and servers -----


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def memory_kb(supervisor: int) -> int | None:
    """Return the resident memory of a supervised program in KiB, or None if it does not run."""
    for program in descendants(supervisor)[:1]:
        with contextlib.suppress(OSError, IndexError):
            return int(Path(f"/proc/{program}/status").read_text().split("VmRSS:")[1].split()[0])
    return None


def find_growth(samples: Sequence[int]) -> tuple[int, int]:
    """Return the largest memory in the second and in the last fifth of the samples."""
    fifth = len(samples) // 5
    return max(samples[fifth : 2 * fifth]), max(samples[-fifth:])


@contextlib.contextmanager
def processes(commands: Sequence[Sequence[str]], folder: Path, name: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run commands, each with its output in a file; end them after the block, and when this process dies."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (
                (folder / f"{name}-{number}.log").open("wb") as log,
                (folder / f"{name}-{number}.out").open("wb") as out,
            ):
                running.append(
                    subprocess.Popen(
                        supervised(command), stdout=out, stderr=log, stdin=subprocess.PIPE, start_new_session=True
                    )
                )
        yield running
    finally:
        for process in running:
            process.stdin.close()  # this kills the program
            process.wait()


def endure(trainers: int, servers: int, minutes: float, folder: Path) -> list[str]:
    """Run trainers and servers, print the measurements, and return the faults."""
    ports = free_ports(servers)
    paddle = str(Path(sys.executable).with_name("paddle"))
    flags = ["--nics=127.0.0.1", "--ports_num=1", f"--num_gradient_servers={trainers}"]
    until = time.time() + 60.0 * minutes
    share = -(-trainers // PROCESSES)
    workers = []
    for first in range(0, trainers, share):
        part = [str(first), str(min(share, trainers - first)), str(trainers), str(until), *map(str, ports)]
        workers.append([sys.executable, "-m", "chaos.endurance", "--worker", *part])
    samples: list[list[int]] = [[] for _ in ports]
    with (
        processes([[paddle, "pserver", f"--port={port}", *flags] for port in ports], folder, "pserver") as serving,
        processes(workers, folder, "trainers") as training,
    ):
        deadline = until + END_BOUND
        while any(process.poll() is None for process in training):
            if time.time() > deadline:
                return [f"the trainers have not ended {END_BOUND:g} s after they were told to"]
            if any(process.poll() for process in training):
                return [f"trainers ended with {[process.poll() for process in training]}; see {folder}/trainers-*.log"]
            if all(process.poll() is None for process in serving) and time.time() < until:
                for kept, process in zip(samples, serving, strict=True):
                    kept += filter(None, [memory_kb(process.pid)])
            with contextlib.suppress(subprocess.TimeoutExpired):
                training[0].wait(SAMPLE_INTERVAL)
        codes = [process.wait(END_BOUND) for process in serving]
    (folder / "memory.json").write_text(json.dumps(samples))
    return judge(trainers, samples, codes, folder, 60.0 * minutes)


def judge(
    trainers: int, samples: Sequence[Sequence[int]], codes: Sequence[int], folder: Path, seconds: float
) -> list[str]:
    """Print rounds and memory, and return the faults."""
    faults = [f"pserver {number} ended with status {code}" for number, code in enumerate(codes) if code]
    rounds: dict[str, int] = {}
    for out in folder.glob("trainers-*.out"):
        text = out.read_text()
        rounds.update(json.loads(text) if text else {})
    counts = sorted(set(rounds.values()))
    print(
        f"{len(rounds)} trainers, {len(codes)} servers: {counts} rounds, {counts[-1] / seconds if counts else 0:.1f}/s"
    )
    if len(rounds) != trainers or len(counts) != 1:
        faults.append(f"{len(rounds)} of {trainers} trainers ended whole, with {counts} rounds")
    for number, kept in enumerate(samples):
        early, late = find_growth(kept)
        print(f"pserver {number}: {early} KiB in the second fifth of the time, {late} KiB in the last")
        if late - early > max(MOST_GROWTH * early, MOST_GROWTH_KB):
            faults.append(f"pserver {number} grew from {early} to {late} KiB")
    return faults


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="chaos.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--trainers", type=int, default=64)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--worker", nargs="+", metavar="PART", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        first, count, trainers, until, *ports = arguments.worker
        services = [("127.0.0.1", int(port)) for port in ports]
        run_worker(int(first), int(count), int(trainers), services, float(until))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="chaos-endurance-"))
    os.environ["PADDLE_PEER_TIMEOUT"] = f"{PEER_TIMEOUT:g}"
    try:
        faults = endure(arguments.trainers, arguments.servers, arguments.minutes, folder)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for fault in faults:
        print(f"FAILED: {fault}; logs in {folder}", file=sys.stderr)
    if not faults:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run_until_interrupted(main))

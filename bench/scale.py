"""Measure how the cost of a round grows with trainers, servers and parameters, and compute it for larger jobs.

usage: bench/scale.py [--quick] [--minutes N] [--memory GIB] [--repeats N]
                      [--machines N --trainers N --processors N --gigabits N]

The servers are `paddle pserver` processes, and the trainers are processes with the client of this project; all of them
are on this machine, and talk over sockets. Every combination of 1 to 256 trainers, 1 to 16 servers, and 10^4 to 10^8
parameters is measured that fits into the memory and the time, and whose heartbeats (one a second from each trainer to
each server) leave half of the processors; `--quick` takes a few of them, in about a minute.

Three tables are printed. The first is measured: rounds per second, and the microseconds of the processor that a server
and a trainer spend on a message, which is a request with its answer. The second has the line that fits best to the
first (bench/cost_model.py), and its residuals. The third is computed from the second: the most rounds per second of a
larger job, on machines with processors of this kind. "At most" is what the busiest part allows: a server, a trainer,
the processors of a machine, or its network. Nothing measures such a job; the first table shows which part of "at most"
the jobs of this machine reach.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # comes before bench/, which also has a module `pserver`

import argparse
import itertools
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from contestants import start_ours
from cost_model import BYTES, SERVER_COSTS, TRAINER_COSTS, Cluster, Fit, Job, find_bounds, find_limit, fit
from interleave import run_interleaved
from machine import describe_machine

WHOLE = ((1, 4, 16, 64, 256), (1, 2, 4, 16), (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000))
QUICK = ((1, 4, 16), (1, 4), (10_000, 1_000_000))
COMPUTED_SERVERS = (10, 100, 1000)
SECONDS = 1.0  # approximate time of one run
PROCESS_BYTES = 30e6  # memory of a server or trainer without parameters
# rough costs, only to choose the jobs: seconds of a program's start, of a message or heartbeat, and of a byte
START_S, MESSAGE_S, BYTE_S = 0.25, 0.4e-3, 1.5e-9


class Measured(NamedTuple):
    """A measured job: rounds per second, and seconds of the processor that a server and a trainer spends on a round."""

    job: Job
    rate: float
    server_s: float
    trainer_s: float


def list_jobs(shape: Sequence[Sequence[int]]) -> list[Job]:
    """Return the jobs of all combinations, in an order in which the first ones have all sizes: time may end early."""
    jobs = list(itertools.starmap(Job, itertools.product(*shape)))
    random.Random(1).shuffle(jobs)
    return jobs


def estimate_bytes(job: Job) -> float:
    """Return the memory that a job needs at most: each trainer has values, and all of them share a gradient; a server
    keeps values, a sum, and what trainers have sent before their turn.
    """
    return BYTES * job.parameters * (2 * job.trainers + 4) + PROCESS_BYTES * (job.trainers + job.servers)


def estimate_seconds(job: Job, repeats: int = 1) -> float:
    """Return roughly how long a job takes with its start, on a machine that does nothing else."""
    start = START_S * (4 + job.servers + 0.2 * job.trainers)
    a_round = MESSAGE_S * job.messages + BYTE_S * 2 * BYTES * job.parameters * job.trainers
    return start + 2 * a_round + (repeats + 1) * max(SECONDS, 3 * a_round)


class Limits(NamedTuple):
    """What the measured jobs may use: bytes of memory, seconds of all jobs together, and processors."""

    memory: float
    seconds: float
    processors: int

    def allow(self, job: Job, seconds: float) -> bool:
        """Return whether a job that takes this time fits, if it is the only one."""
        heartbeats = MESSAGE_S * job.messages  # seconds of the processor in a second
        return estimate_bytes(job) <= self.memory and heartbeats <= self.processors / 2 and seconds <= self.seconds


def choose(jobs: Sequence[Job], limits: Limits, repeats: int) -> Iterator[Job]:
    """Yield the jobs that fit into the limits; each job is judged when it is due, by the time that is left then."""
    began = time.monotonic()
    for job in jobs:
        if limits.allow(job, time.monotonic() - began + estimate_seconds(job, repeats)):
            yield job


def measure(job: Job, repeats: int) -> Measured:
    """Run a job."""
    group = start_ours(str(job), "dense", job.parameters, servers=job.servers, trainers=job.trainers)
    try:
        group.run(1)
        rounds = max(2, int(SECONDS * group.run(2)))
        run_interleaved([group], rounds, repeats)
    finally:
        group.close()
    servers, trainers = (statistics.median(parts) for parts in zip(*group.spent, strict=True))
    return Measured(job, statistics.median(group.rates), servers / job.servers, trainers / job.trainers)


def fit_both(measured: Sequence[Measured]) -> tuple[Fit, Fit]:
    """Return the lines of a server and of a trainer."""
    return (
        fit([one.job.server_factors() for one in measured], [one.server_s for one in measured]),
        fit([one.job.trainer_factors() for one in measured], [one.trainer_s for one in measured]),
    )


def free_memory() -> float:
    """Return the bytes that programs of this machine can still use."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable"):
            return 1024 * float(line.split()[1])
    return 0.0


def show_measured(one: Measured) -> str:
    """Return a row of the first table, as far as it is known when the job has run."""
    job = one.job
    cells = [str(job.trainers), str(job.servers), f"{job.parameters:,}", f"{one.rate:.4g}"]
    cells += [f"{1e6 * one.server_s / job.trainers:.4g}", f"{1e6 * one.trainer_s / job.servers:.4g}"]
    return f"| {' | '.join(cells)} |"


def print_fit(name: str, costs: Sequence[str], line: Fit) -> None:
    """Print a row of the second table."""
    units = {"fixed": (1e6, "us a round"), "message": (1e6, "us"), "byte": (1e9, "ns"), "step": (1e9, "ns a byte")}
    shown = [
        f"{cost} {value * units[cost][0]:.3g} {units[cost][1]}" for cost, value in zip(costs, line.costs, strict=True)
    ]
    sizes = np.abs(line.residuals)
    print(f"| {name} | {', '.join(shown)} | {np.median(sizes):.0%} | {sizes.max():.0%} |")


def print_residuals(measured: Sequence[Measured], server: Fit, trainer: Fit, cluster: Cluster) -> list[float]:
    """Print what the lines give relative to each measurement; return the measured part of "at most" of each."""
    print(
        "\nComputed / measured, of the processor's time of a server and of a trainer; measured / at most, of rounds/s\n"
    )
    print("| trainers | servers | parameters | server | trainer | rounds/s of at most | limit |")
    print("|---|---|---|---|---|---|---|")
    parts = []
    for one, *residuals in zip(measured, server.residuals, trainer.residuals, strict=True):
        limit, seconds = find_limit(find_bounds(one.job, cluster, server, trainer))
        parts.append(one.rate * seconds)
        cells = [*map(str, one.job[:2]), f"{one.job.parameters:,}", *(f"{1 + value:.2f}" for value in residuals)]
        print(f"| {' | '.join([*cells, f'{parts[-1]:.2f}', limit])} |")
    return parts


def print_computed(cluster: Cluster, trainers: int, lines: tuple[Fit, Fit], part: float) -> None:
    """Print the third table. `part`: the part of "at most" that the jobs of this machine reached."""
    print(
        f"\nComputed, not measured: {trainers:,} trainers on {cluster.machines} machines, each of {cluster.processors} "
        f"processors and a network of {8e-9 * cluster.network:g} Gbit/s\n"
    )
    print(
        f"| servers | parameters | rounds/s at most | limit | {part:.2f} of it | processor us of a server a message |"
    )
    print("|---|---|---|---|---|---|")
    for servers, parameters in itertools.product(COMPUTED_SERVERS, WHOLE[2]):
        job = Job(trainers, servers, parameters)
        bounds = find_bounds(job, cluster, *lines)
        limit, seconds = find_limit(bounds)
        of_message = f"{1e6 * bounds['server'] / trainers:.3g}"
        cells = [f"{servers:,}", f"{parameters:,}", f"{1 / seconds:.3g}", limit, f"{part / seconds:.3g}", of_message]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Print the machine and the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure few jobs, in about a minute")
    parser.add_argument("--minutes", type=float, default=30.0, help="time of the measurements")
    parser.add_argument("--memory", type=float, help="memory in GiB that a job may use; 60 %% of the free memory")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each job after its first run")
    parser.add_argument("--machines", type=int, default=100, help="of the computed job")
    parser.add_argument("--trainers", type=int, default=1000, help="of the computed job")
    parser.add_argument("--processors", type=int, default=os.cpu_count(), help="of a machine of the computed job")
    parser.add_argument("--gigabits", type=float, default=10.0, help="of the computed job's network, a second")
    options = parser.parse_args()
    memory = 2**30 * options.memory if options.memory else 0.6 * free_memory()
    repeats = 1 if options.quick else options.repeats
    minutes = min(options.minutes, 1.0) if options.quick else options.minutes
    print(describe_machine())
    print("\nMeasured; a message is a request with its answer\n")
    print("| trainers | servers | parameters | rounds/s | processor us of a server a message | of a trainer |")
    print("|---|---|---|---|---|---|")
    jobs = list_jobs(QUICK if options.quick else WHOLE)
    limits = Limits(memory, 60 * minutes, os.cpu_count() or 1)
    measured = []
    for job in choose(jobs, limits, repeats):
        measured.append(measure(job, repeats))
        print(show_measured(measured[-1]), flush=True)
    print(f"\n{len(measured)} of {len(jobs)} jobs fit into {memory / 2**30:.0f} GiB and {minutes:g} minutes")
    measured.sort()
    try:
        lines = fit_both(measured)
    except ValueError as exc:
        raise SystemExit(f"bench/scale.py: {exc}; give more --minutes or --memory") from exc
    print("\nFitted by least squares of the relative residuals, no cost below 0\n")
    print("| a round of | costs | median residual | largest |\n|---|---|---|---|")
    print_fit("a server", SERVER_COSTS, lines[0])
    print_fit("a trainer", TRAINER_COSTS, lines[1])
    parts = print_residuals(measured, *lines, Cluster(1, os.cpu_count() or 1))
    cluster = Cluster(options.machines, options.processors, options.gigabits * 1e9 / 8)
    print_computed(cluster, options.trainers, lines, statistics.median(parts))
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

"""Measure the seconds of one decision of `paddle autoscaler` with 10,000 nodes and 1,000 jobs in several situations.

Usage: python bench/autoscaler.py. The limit is 1 s, because the autoscaler decides at most once a second.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

from autoscale.large import make_large

from paddle_cluster.master.autoscaler.packing import Demand
from paddle_cluster.master.autoscaler.plan import make_plan

NODES, JOBS, TURNS = 10_000, 1_000, 3


def main() -> None:
    """Print a line for each situation."""
    full, crowd = make_large(NODES, JOBS)
    empty, begin = make_large(NODES, JOBS, crowded=False)
    pressed = full.__class__(full.rooms, [Demand((3000, 4 << 30, 1), 5000)])
    for name, cluster, jobs in (("half of the jobs are new", full, crowd), ("empty nodes", empty, begin),
                                ("5,000 pods of a service wait", pressed, crowd)):  # fmt: skip
        times = []
        for _ in range(TURNS):
            begun = time.perf_counter()
            plan = make_plan(cluster, jobs, 1000.0)
            times.append(time.perf_counter() - begun)
        print(f"autoscaler: {name}: {min(times):.2f} to {max(times):.2f} s a decision, {len(plan.changes)} changes")


if __name__ == "__main__":
    main()

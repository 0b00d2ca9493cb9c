"""A large cluster with many jobs, for the time of a decision."""

from __future__ import annotations

from paddle_cluster.master.autoscaler.packing import ClusterRoom
from paddle_cluster.master.autoscaler.plan import TrainerJob


def make_large(nodes: int, jobs: int, crowded: bool = True) -> tuple[ClusterRoom, list[TrainerJob]]:
    """Nodes of 16 CPUs, with room for 3 trainers of 5 each, all taken by the first half of the jobs."""
    rooms = [(15_600, 64 << 30, 110)] * nodes
    placed: list[dict[int, int]] = [{} for _ in range(jobs)]
    for node in range(nodes if crowded else 0):
        for slot in range(3):
            mine = placed[(3 * node + slot) % max(jobs // 2, 1)]
            mine[node] = mine.get(node, 0) + 1
    request = (5000, 8 << 30, 1)
    made = [
        TrainerJob(f"science/job-{n}", 2, 100, max(sum(there.values()), 2), request, placed=there)
        for n, there in enumerate(placed)
    ]
    return ClusterRoom(rooms), made

"""Pure functions that compute the input of `make_plan` (room and jobs) from the facts about nodes, pods and Jobs.

No I/O.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from paddle_cluster.master.autoscaler.amounts import EVERY, Requests
from paddle_cluster.master.autoscaler.facts import LEAST, MOST, JobFacts, NodeFacts, Placement, PodFacts
from paddle_cluster.master.autoscaler.packing import Amounts, ClusterRoom, Demand, Sites
from paddle_cluster.master.autoscaler.plan import Past, TrainerJob

MOST_TRAINERS = 100_000  # maximum trainers of a job
POD = "pods"  # the resource that limits the number of pods on a node
MISSING = "missing"  # stands for all resources that no node has; a pod that requests one of them fits nowhere
UNBOUNDED = 1 << 100  # the amount of a resource that a cap does not name
Caps = Mapping[str, Mapping[str, int]]  # the result of `parse_caps`


class ClusterSnapshot(NamedTuple):
    """The state of the cluster at one moment."""

    room: ClusterRoom
    jobs: list[TrainerJob]
    facts: list[JobFacts]  # facts about `jobs`, in the same order
    problems: dict[str, str]  # reason why a Job with annotations is ignored, by UID of the Job


def judge_job(job: JobFacts) -> str:
    """Return why the autoscaler ignores a Job, or "" if it manages the Job."""
    if job.queue:
        return f"{job.key} is managed by Kueue (queue {job.queue}), which decides when the Job runs: the Job is ignored"
    return find_mistake(job)


def find_mistake(job: JobFacts) -> str:
    """Return what the user must correct in a Job with annotations of task jobs, or "" if nothing is wrong."""
    for name, text in ((LEAST, job.least), (MOST, job.most)):
        if text is None:
            return f"{job.key} lacks the annotation {name}: the Job is ignored; write both annotations"
        if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= MOST_TRAINERS:
            return (
                f"{job.key} has {name}: {text[:40]!r}, which is not a number from 1 to {MOST_TRAINERS}: "
                'the Job is ignored; write a number in quotes, such as "2"'
            )
    if int(job.least or 0) > int(job.most or 0):
        return (
            f"{job.key} has {LEAST}: {job.least}, which exceeds {MOST}: {job.most}: the Job is ignored; "
            "exchange the two numbers"
        )
    if job.has_completions:
        return f"{job.key} has completions, so its pods are not exchangeable: the Job is ignored; remove completions"
    return ""


def make_snapshot(
    nodes: Iterable[NodeFacts],
    pods: Iterable[PodFacts],
    jobs: Iterable[JobFacts],
    pasts: Mapping[str, Past],
    caps: Caps = MappingProxyType({}),
) -> ClusterSnapshot:
    """Return the cluster in the form that `make_plan` needs; times in `pasts` are seconds since the epoch."""
    found = sorted(jobs, key=lambda job: (job.created, job.key))
    problems = {job.uid: problem for job in found if (problem := judge_job(job))}
    elastic = [job for job in found if job.uid not in problems and not job.is_over]
    numbers = {job.uid: index for index, job in enumerate(elastic)}
    map_room = _Rooms([node for node in nodes if node.is_ready], {name for job in elastic for name, _ in job.requests})
    placed: list[Counter[int]] = [Counter() for _ in elastic]
    waiting: list[list[float]] = [[] for _ in elastic]
    lowest = math.inf  # lowest priority of the trainers
    queue: list[PodFacts] = []
    for pod in pods:
        index = numbers.get(pod.job)
        if index is None:
            if pod.node:
                map_room.take(pod)
            elif not (pod.is_gated or pod.is_terminating):  # the scheduler looks for no node for such a pod
                queue.append(pod)
            continue
        lowest = min(lowest, pod.priority)
        node = map_room.indexes.get(pod.node)
        if pod.is_terminating:
            continue
        if not pod.node:
            waiting[index].append(pod.created)
        elif node is not None:
            placed[index][node] += 1
    demands: Counter[tuple[Amounts, Placement]] = Counter()
    for pod in queue:
        # a pod of lower priority does not get the room that a trainer wants
        if lowest == math.inf or pod.priority >= lowest:
            demands[map_room.amounts(pod.requests), pod.placement] += 1
    room = ClusterRoom(
        [tuple(room) for room in map_room.rooms],
        [Demand(request, count, map_room.sites(placement)) for (request, placement), count in demands.items()],
        frozenset(index for index, node in enumerate(map_room.nodes) if not node.is_open),
        map_room.caps({job.namespace for job in elastic}, caps),
    )
    made = [
        TrainerJob(
            job.key,
            int(job.least or 0),
            int(job.most or 0),
            job.parallelism,
            map_room.amounts(job.requests),
            map_room.sites(job.placement),
            placed[index],
            len(waiting[index]),
            min(waiting[index], default=math.inf),
            pasts.get(job.uid, Past()),
        )
        for index, job in enumerate(elastic)
    ]
    return ClusterSnapshot(room, made, elastic, problems)


class _Rooms:
    """The resources of nodes, minus the requests of pods that are not trainers.

    Only resources that a node has take time and memory for each node: the users of a namespace choose the others.

    Args: wanted: the resources that trainers request.
    """

    def __init__(self, nodes: Sequence[NodeFacts], wanted: Set[str]) -> None:
        self.nodes, self.indexes = nodes, {node.name: index for index, node in enumerate(nodes)}
        self._found = {name for node in nodes for name in node.allocatable}
        known = wanted & self._found - {POD}
        self._names = sorted(known) + [MISSING] * bool(wanted - known - {POD})
        self.rooms = [[node.allocatable.get(name, 0) for name in (*self._names, POD)] for node in nodes]
        self._amounts: dict[Requests, Amounts] = {}
        self._sites: dict[Placement, Sites] = {}

    def amounts(self, requests: Requests) -> Amounts:
        """Return the amounts that one pod requests."""
        if requests not in self._amounts:
            wants = dict(requests)
            wants[MISSING] = int(any(name not in self._found for name in wants))
            self._amounts[requests] = (*(wants.get(name, 0) for name in self._names), 1)
        return self._amounts[requests]

    def take(self, pod: PodFacts) -> None:
        """Subtract the requests of a pod from the room of its node."""
        index = self.indexes.get(pod.node)
        if index is None:
            return
        room = self.rooms[index]
        for position, amount in enumerate(self.amounts(pod.requests)):
            room[position] -= amount

    def caps(self, namespaces: Iterable[str], caps: Caps) -> dict[str, Amounts]:
        """Return the cap of each namespace that has a cap."""
        found = {namespace: caps.get(namespace, caps.get(EVERY)) for namespace in namespaces}
        names = (*self._names, POD)
        return {namespace: tuple(cap.get(name, UNBOUNDED) for name in names) for namespace, cap in found.items() if cap}

    def sites(self, placement: Placement) -> Sites:
        """Return the indexes of the nodes that accept a pod with this placement, or None if all nodes accept it."""
        if placement not in self._sites:
            taking = frozenset(index for index, node in enumerate(self.nodes) if node.takes(placement))
            self._sites[placement] = None if len(taking) == len(self.nodes) else taking
        return self._sites[placement]

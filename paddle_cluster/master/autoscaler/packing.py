"""Pure code that finds nodes that have room for another trainer.

Amounts are tuples of integers, one integer for each resource that a trainer of any job requests. The unit is a
thousandth of a CPU for CPUs, a byte for memory, and a pod for pods. All tuples of a cluster have the same length and
order. No I/O.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Amounts = tuple[int, ...]
Sites = frozenset[int] | None  # indexes of the nodes that accept a pod; None: all nodes accept the pod


class Demand(NamedTuple):
    """Waiting pods that are not trainers and have equal requests; the plan places these pods before trainers."""

    request: Amounts
    number: int = 1
    sites: Sites = None


@dataclass(frozen=True)
class ClusterRoom:
    """The resources that each node has for trainers.

    They are the allocatable resources minus the requests of the node's pods that are not trainers.
    """

    rooms: Sequence[Amounts]
    demands: Sequence[Demand] = ()
    closed: frozenset[int] = frozenset()  # cordoned nodes, which accept no new pods; the trainers there continue
    caps: Mapping[str, Amounts] = field(default_factory=dict)  # maximum of the requests of all trainers, by namespace


class CapCount:
    """The sum of the requests of the trainers of each namespace that has a cap."""

    def __init__(self, caps: Mapping[str, Amounts]) -> None:
        self._caps = caps
        self._sums = {namespace: (0,) * len(cap) for namespace, cap in caps.items()}

    def add(self, namespace: str, request: Amounts, number: int = 1) -> None:
        """Count `number` trainers, even if they exceed the cap."""
        if namespace in self._sums:
            pairs = zip(self._sums[namespace], request, strict=True)
            self._sums[namespace] = tuple(total + number * amount for total, amount in pairs)

    def admits(self, namespace: str, request: Amounts) -> bool:
        """Return whether the cap leaves room for one more trainer."""
        if namespace not in self._sums:
            return True
        triples = zip(self._sums[namespace], request, self._caps[namespace], strict=True)
        return all(total + amount <= cap for total, amount, cap in triples if amount)

    def is_exceeded(self, namespace: str) -> bool:
        """Return whether the trainers request more than the cap."""
        return namespace in self._sums and any(map(operator.gt, self._sums[namespace], self._caps[namespace]))


@dataclass
class _Shape:
    """The state of the search for nodes for pods that have equal requests and may use the same nodes.

    The search never returns to a node that it has passed, because a node never gets more room.
    """

    nodes: Sequence[int]
    beside: int = 0  # index in `nodes` of the first node that may have room in addition to its running trainers
    instead: int = 0  # index in `nodes` of the first node that may have room if running trainers leave


@dataclass
class _Own:
    """The nodes of those running trainers of a job that `place` has not counted yet; each trainer has one entry."""

    nodes: list[int] = field(default_factory=list)


class Packing:
    """Places pods one by one; a trainer is placed first on the nodes where trainers of its job already run.

    Args: placed: for each job, the number of its running trainers by node.  requests: for each job, the amounts that
        one trainer requests.
    """

    def __init__(self, cluster: ClusterRoom, requests: Sequence[Amounts], placed: Sequence[Mapping[int, int]]) -> None:
        self._rooms = [tuple(map(_at_least_0, room)) for room in cluster.rooms]
        self._free = list(self._rooms)
        self._closed = cluster.closed
        self._requests = requests
        self._shapes: dict[tuple[Amounts, Sites], _Shape] = {}
        self._own = []
        for request, nodes in zip(requests, placed, strict=True):
            # trainers on the nodes with the least room are counted first, because other nodes may fit a larger trainer
            ascending = sorted(nodes, key=lambda node: self._rooms[node], reverse=True)
            self._own.append(_Own([node for node in ascending for _ in range(nodes[node])]))
            for node, count in nodes.items():
                self._free[node] = tuple(
                    have - count * amount for have, amount in zip(self._free[node], request, strict=True)
                )
        for demand in cluster.demands:
            for _ in range(demand.number):
                if not self._place_anew(demand.request, demand.sites):
                    break

    def place(self, job: int, sites: Sites) -> bool:
        """Count one more trainer of a job; return False if no node has room for the trainer."""
        own, request = self._own[job].nodes, self._requests[job]
        while own:
            node = own.pop()
            if all(map(operator.ge, self._rooms[node], request)):
                self._rooms[node] = tuple(map(operator.sub, self._rooms[node], request))
                return True
        return self._place_anew(request, sites)

    def _place_anew(self, request: Amounts, sites: Sites) -> bool:
        shape = self._shapes.get((request, sites))
        if shape is None:
            nodes = range(len(self._rooms)) if sites is None else sorted(sites)
            shape = _Shape([node for node in nodes if node not in self._closed])
            self._shapes[request, sites] = shape
        while shape.beside < len(shape.nodes):
            node = shape.nodes[shape.beside]
            if all(map(operator.ge, self._free[node], request)) and all(map(operator.ge, self._rooms[node], request)):
                return self._take(node, request)
            shape.beside += 1
        while shape.instead < len(shape.nodes):
            node = shape.nodes[shape.instead]
            if all(map(operator.ge, self._rooms[node], request)):
                return self._take(node, request)
            shape.instead += 1
        return False

    def _take(self, node: int, request: Amounts) -> bool:
        self._rooms[node] = tuple(map(operator.sub, self._rooms[node], request))
        self._free[node] = tuple(map(operator.sub, self._free[node], request))
        return True


def _at_least_0(amount: int) -> int:
    return max(amount, 0)

"""Ranks of a group as threads of one process, and a store in memory through which they find each other."""

from __future__ import annotations

import secrets as random_bytes
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from paddle_cluster.elastic.collectives.forming import form
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.joining import GroupPlan
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.process.set_registry import DYNAMIC, ProcessSet, SetRegistry

DEADLINE_S = 60.0
S = TypeVar("S")
T = TypeVar("T")


class MemoryStore:
    """A replacement of `RendezvousClient` that stores keys in the memory of this process."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}
        self._changed = threading.Condition()

    def put(self, scope: str, key: str, value: bytes) -> None:
        with self._changed:
            self._values[scope, key] = value
            self._changed.notify_all()

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: (scope, key) in self._values, wait)
            return self._values.get((scope, key))

    def delete(self, scope: str, key: str) -> None:
        with self._changed:
            self._values.pop((scope, key), None)

    def list_scopes(self) -> set[str]:
        with self._changed:
            return {scope for scope, _ in self._values}


@contextmanager
def groups(
    size: int,
    *,
    with_memory: bool | Sequence[Collection[int]] = True,
    secret: str = "s3cret",
    patience: Patience | None = None,
    timeout: float = DEADLINE_S,
) -> Iterator[list[RankGroup]]:
    """Yields the ranks of a group in this process; at the end they leave.

    with_memory: True if all ranks share memory; or the ranks of each host, which share memory.
    """
    store = MemoryStore()
    scope = f"group_{time.monotonic_ns()}"

    def make(rank: int) -> RankGroup:
        plan = GroupPlan(rank, size, scope, secret=secret, timeout=timeout, incarnation=random_bytes.token_hex(8))
        hosts = [range(size)] if with_memory is True else with_memory or []
        return form(plan, store, patience, near=next((host for host in hosts if rank in host), ()))

    with ThreadPoolExecutor(size) as threads:
        made = list(threads.map(make, range(size)))
    try:
        yield made
    finally:
        with ThreadPoolExecutor(size) as threads:
            list(threads.map(RankGroup.leave, made))


@contextmanager
def registries(size: int, declared: Any = DYNAMIC, **more: Any) -> Iterator[list[SetRegistry]]:
    """Yields the process sets of each rank of a group in this process; at the end the ranks leave.

    declared: what each rank gives to `init(process_sets=...)`: "dynamic", or lists of ranks.
    """
    store = MemoryStore()
    with groups(size, **more) as made:

        def begin(group: RankGroup) -> SetRegistry:
            registry = SetRegistry()
            sets = declared if declared == DYNAMIC else [ProcessSet(ranks) for ranks in declared]
            registry.declare(sets, is_dynamic=False)
            registry.begin(group, lambda one, number: form_set(group, one, number, store))
            return registry

        found = on_all(made, begin)
        try:
            yield found
        finally:
            with ThreadPoolExecutor(size) as threads:
                list(threads.map(SetRegistry.end, found))


def form_set(whole: RankGroup, process_set: ProcessSet, number: int, store: MemoryStore) -> RankGroup:
    """Forms the group of a process set on one of its members."""
    ranks = process_set.ranks
    plan = GroupPlan(ranks.index(whole.rank), len(ranks), f"set_{number}", timeout=DEADLINE_S)
    return form(plan, store, beside=whole)


def run(group: RankGroup, kind: CollectiveKind, array: np.ndarray, **more: Any) -> np.ndarray:
    """Runs a collective to its end; returns its result."""
    return group.wait(group.submit(kind, array, **more))


def add(group: RankGroup, array: np.ndarray, **more: Any) -> np.ndarray:
    """The sum of the arrays of all ranks."""
    return run(group, CollectiveKind.ALLREDUCE, array, argument=Reduction.SUM, **more)


def stop(group: RankGroup) -> np.ndarray:
    """Waits for all ranks."""
    return run(group, CollectiveKind.BARRIER, np.empty(0, np.uint8))


def on_all(made: Sequence[S], work: Callable[[S], T]) -> list[T]:
    """Runs a function on all ranks at the same time; returns its results."""
    with ThreadPoolExecutor(len(made)) as threads:
        return [one.result(DEADLINE_S) for one in [threads.submit(work, group) for group in made]]

"""Ranks as threads of one process, each of which calls `paddle.elastic.torch` as a worker of its own does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from collective_ranks import on_all, registries

from paddle.elastic.torch import asynchronous, handles
from paddle_cluster.elastic.collectives.stalls import Patience
from paddle_cluster.elastic.process.membership import WorkerMembership
from paddle_cluster.elastic.process.placement import ProcessPlacement
from paddle_cluster.elastic.process.set_registry import GlobalProcessSet, SetRegistry

T = TypeVar("T")
PATIENCE = Patience(stall=20.0, end=20.0)  # a test whose ranks disagree ends
RANK = threading.local()  # `group`, `sets`: of the rank that this thread is


class HandlesOfThreads(threading.local, handles.HandleTable):
    """The table of each rank, because a table belongs to a process."""


def of_rank(name: str, read: Callable[[], Any]) -> property:
    """Returns a property in the place of an attribute, which in the thread of a rank has the value of the rank."""
    return property(
        lambda self: read() if hasattr(RANK, "group") else vars(self)[name],
        lambda self, value: vars(self).update({name: value}),
    )


@contextmanager
def torch_ranks(size: int) -> Iterator[Callable[[Callable[[int], T]], list[T]]]:
    """Yields a function that calls a function of the rank on all ranks, and returns the results by rank.

    Process sets can be added, and are shared by no ranks: each rank makes an object of its own.
    """
    of_worker = {
        "sets": of_rank("sets", lambda: RANK.sets),
        "placement": of_rank("placement", lambda: ProcessPlacement(rank=RANK.group.rank, size=RANK.group.size)),
    }
    of_whole = {
        "_group": of_rank("_group", lambda: RANK.group),
        "ranks": of_rank("ranks", lambda: list(range(RANK.group.size))),
    }

    def on_ranks(work: Callable[[int], T]) -> list[T]:
        def enter(sets: SetRegistry) -> T:
            RANK.group, RANK.sets = sets.whole.group, sets
            return work(RANK.group.rank)

        return on_all(made, enter)

    with (
        registries(size, patience=PATIENCE) as made,
        mock.patch.multiple(WorkerMembership, **of_worker, create=True),
        mock.patch.multiple(GlobalProcessSet, **of_whole, create=True),
        mock.patch.object(asynchronous, "HANDLES", HandlesOfThreads()),
    ):
        yield on_ranks

"""Ranks as threads of one process, each of which calls `paddle.elastic.torch` as a worker of its own does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from collective_ranks import groups, on_all

from paddle.elastic.torch import asynchronous, handles
from paddle_cluster.elastic.collectives.group import Patience, RankGroup
from paddle_cluster.elastic.process.membership import ProcessPlacement, WorkerMembership

T = TypeVar("T")
PATIENCE = Patience(stall=20.0, end=20.0)  # a test whose ranks disagree ends
RANK = threading.local()  # `group`: the group of the rank that this thread is


class HandlesOfThreads(threading.local, handles.HandleTable):
    """The table of each rank, because a table belongs to a process."""


@contextmanager
def torch_ranks(size: int) -> Iterator[Callable[[Callable[[int], T]], list[T]]]:
    """Yields a function that calls a function of the rank on all ranks, and returns the results by rank."""
    places: dict[str, Any] = {
        "group": property(lambda _: RANK.group),
        "is_initialised": property(lambda _: True),
        "placement": property(
            lambda _: ProcessPlacement(rank=RANK.group.rank, size=RANK.group.size),
            lambda *_: None,
        ),
    }

    def on_ranks(work: Callable[[int], T]) -> list[T]:
        def enter(group: RankGroup) -> T:
            RANK.group = group
            return work(group.rank)

        return on_all(made, enter)

    with (
        groups(size, patience=PATIENCE) as made,
        mock.patch.multiple(WorkerMembership, **places, create=True),
        mock.patch.object(asynchronous, "HANDLES", HandlesOfThreads()),
    ):
        yield on_ranks

"""Ranks as threads of one process, each of which sees its own group in the functions of `hvd`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar
from unittest import mock

from collective_ranks import groups, on_all

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.process.membership import WORKER, WorkerMembership

T = TypeVar("T")


def as_ranks(size: int, work: Callable[[int], T], *, secret: str = "s3cret") -> list[T]:
    """Runs a function on each rank at the same time; returns the results.

    A rank whose function fails leaves its group, so that the others end, too. Raises: the error of the first such rank.
    """
    own = threading.local()

    def run(group: RankGroup) -> T:
        own.group = group
        try:
            return work(group.rank)
        except BaseException:
            group.leave()
            raise

    with (
        groups(size, secret=secret) as made,
        mock.patch.object(WorkerMembership, "group", property(lambda _: own.group)),
        mock.patch.object(WORKER, "secret", secret),
    ):
        return on_all(made, run)

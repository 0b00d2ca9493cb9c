"""A child that a worker forks, e.g. to load data, takes no part in the worker's group."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import CollectiveKind
from paddle_cluster.elastic.errors import HorovodInternalError


class _Mesh:
    """A mesh that notes whether its group has left."""

    rank, size, failure, silence = 0, 1, "", 0.0

    def __init__(self) -> None:
        self.has_left = False
        self.peers: dict[int, object] = {}

    def leave(self, deadline: float | None = None) -> None:
        self.has_left = True


def _is_true_in_child(check: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        is_true = False
        try:
            is_true = check()
        finally:
            os._exit(0 if is_true else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_forked_child_that_exits_does_not_leave_the_group_of_its_parent() -> None:
    """The exit handler of a forked child told the other ranks that its parent's rank had left, and the job failed."""
    mesh = _Mesh()
    group = RankGroup(mesh, None)  # type: ignore[arg-type]

    def leave() -> bool:
        group.leave()
        return not mesh.has_left

    assert _is_true_in_child(leave)
    group.leave()
    assert mesh.has_left


def test_a_forked_child_cannot_call_collectives() -> None:
    """A collective of a forked child used the parent's connections, and its frames mixed with those of the parent."""
    group = RankGroup(_Mesh(), None)  # type: ignore[arg-type]

    def submit() -> bool:
        with pytest.raises(HorovodInternalError, match="a forked process is no rank"):
            group.submit(CollectiveKind.BARRIER, np.empty(0, np.uint8))
        return True

    assert _is_true_in_child(submit)
    group.leave()

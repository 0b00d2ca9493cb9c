"""The numbers by which a script waits for its collectives, as in Horovod."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.process.membership import WORKER


class Pending(Protocol):
    """What has begun: a collective, or something that is built from collectives."""

    def poll(self) -> bool:
        """Return at once whether the result is there."""

    def wait(self) -> Any:
        """Wait for the result, and return it."""


class StartedCollective(NamedTuple):
    """A collective that no `synchronize` has waited for yet.

    Attributes: finish: makes the result of the script from the arrays.
    """

    pending: Pending
    finish: Callable[[Any], Any]


class HandleTable:
    """The collectives of this process that wait for `synchronize`, by handle.

    Thread safety: every method may be called from any thread, because one operation on a dictionary is atomic.
    """

    def __init__(self) -> None:
        self._started: dict[int, StartedCollective] = {}
        self._numbers = itertools.count()
        self._group: RankGroup | None = None

    def add(self, pending: Pending, finish: Callable[[Any], Any]) -> int:
        """Return the handle of a collective."""
        group = WORKER.group
        if group is not self._group:  # what a failed generation has left would never be freed
            self._started, self._group = {}, group
        handle = next(self._numbers)
        self._started[handle] = StartedCollective(pending, finish)
        return handle

    def poll(self, handle: int) -> bool:
        """Return at once whether a collective is done.

        Raises: ValueError: there is no such handle.
        """
        started = self._started.get(handle)
        if started is None:
            raise ValueError(f"Handle {handle} was not created or has been cleared.")
        return started.pending.poll()

    def synchronize(self, handle: int) -> Any:
        """Wait for a collective, forget its handle, and return its result; None if there is no such handle."""
        started = self._started.pop(handle, None)
        return None if started is None else started.finish(started.pending.wait())


HANDLES = HandleTable()

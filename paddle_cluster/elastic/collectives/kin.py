"""The groups of a rank: that of all ranks, and those of its process sets.

The failure of one of them ends the others.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from paddle_cluster.elastic.collectives.mesh import HeartbeatThread


class Member(Protocol):
    """A group of a rank; `paddle_cluster.elastic.collectives.group.RankGroup` implements it."""

    @property
    def is_driven(self) -> bool:
        """Whether a thread runs the rounds of the group."""

    @property
    def has_requests(self) -> bool:
        """Whether a request waits for its result."""

    def start(self) -> None:
        """Run the waiting requests in the group's own thread."""

    def abandon(self, reason: str) -> None:
        """End the group, if it has not ended."""


class Kin:
    """The groups of a rank that end together. Any thread may call any method.

    Attributes: heart: sends the heartbeats of all of them.
    """

    def __init__(self) -> None:
        self.heart = HeartbeatThread()
        self._groups: list[Member] = []

    def add(self, group: Member) -> None:
        """Add a group."""
        self._groups.append(group)

    def remove(self, group: Member) -> None:
        """Let a group end alone, from now on; nothing happens if it does so already."""
        with contextlib.suppress(ValueError):
            self._groups.remove(group)

    def is_driven_beside(self, group: Member) -> bool:
        """Return whether a thread runs the rounds of another group."""
        return any(one.is_driven for one in self._groups if one is not group)

    def start_beside(self, group: Member) -> None:
        """Run the requests of the other groups.

        A later request finds that a thread runs the rounds of `group`, and runs, too.
        """
        for other in self._groups[:]:
            if other is not group and other.has_requests:
                other.start()

    def end_beside(self, group: Member, reason: str) -> None:
        """End the other groups; whoever waits in them for a lost rank would wait for long."""
        groups = self._groups[:]
        for other in groups if group in groups else ():
            if other is not group:
                other.abandon(reason)

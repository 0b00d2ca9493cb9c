"""The interface of a master's store: one master leads at a time, and only the writes of the present leader count.

    with store.campaign(...) as leadership:      # waits until this process leads
        pairs = leadership.load()
        leadership.publish("10.0.0.1:8080")
        leadership.commit([("task/00000001", "[...]")])

A separate thread of the leader calls `renew` three times in each time to live. A leader that was frozen for longer than
the time to live has lost the leadership: none of its later writes takes effect, and `commit` raises an error.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence

Write = tuple[str, str | None]  # a key and its value; the value None deletes the key
MOST_JOBS = 50  # maximum number of jobs in the list of a store's jobs


class Leadership(typing.Protocol):
    """The right of one process to write to the store. The process may lose this right."""

    token: int  # later leaders have larger tokens

    def load(self) -> Iterable[tuple[str, str]]:
        """Yield all keys in order, with their values, as previous leaders have stored them.

        Raises: DamagedError, VolumeError or PeerUnreachableError.
        """

    def commit(self, writes: Sequence[Write]) -> None:
        """Store writes in this order. If the leader ends meanwhile, the store may contain only the first few writes.

        Raises: LeadershipLostError: the writes have no effect, or their effect is unknown.
        """

    def publish(self, address: str) -> None:
        """Publish the address at which trainers reach this leader. The address is valid while this leader leads.

        Raises: LeadershipLostError.
        """

    def renew(self) -> None:
        """Extend the leadership by another time to live.

        Raises: LeadershipLostError: this leader has lost the lead.  PeerUnreachableError, VolumeError: the store does
            not work now, but another call may succeed.
        """

    def resign(self) -> None:
        """Allow another process to lead at once. This method raises no errors."""


class LeaderStore(typing.Protocol):
    """A place for the state of one job."""

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """Return the leadership when this process has it, or None after `is_stopped` returns True.

        Args: note: function that writes a log line about the present leader.
        Raises: PeerUnreachableError, VolumeError: the store cannot be used.
        """

    def close(self) -> None:
        """Close connections."""


class AddressBook(typing.Protocol):
    """The place where trainers find the leader."""

    @property
    def place(self) -> str:
        """The flag that names the store, e.g. --store_dir=DIRECTORY."""

    def list_jobs(self) -> list[str]:
        """Return the names of at most MOST_JOBS jobs that have, or had, a master in this store.

        Raises: PeerUnreachableError, VolumeError: the store cannot be read now.
        """

    def find(self) -> str:
        """Return "host:port" of the leader, or "" if there is none.

        Raises: PeerUnreachableError, VolumeError: the store cannot be read now.
        """

    def wait(self, known: str, timeout: float) -> str:
        """Return the leader's address as soon as it differs from `known`, or after `timeout` seconds."""

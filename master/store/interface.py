"""What the master wants of a store, whatever it is: one leader at a time, whose writes are all conditional on that.

    with store.campaign(...) as leadership:      # waits until this process leads
        pairs = leadership.load()
        leadership.publish("10.0.0.1:8080")
        leadership.commit([("task/00000001", "[...]")])

A leader renews its leadership every third of the time to live by `renew`, in a thread of its own. One that was frozen
for longer has lost it: none of its writes counts any more, and `commit` says so.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence

Write = tuple[str, str | None]  # a key and its value; None deletes it
MOST_JOBS = 50  # of a store that are named


class Leadership(typing.Protocol):
    """The right to write, until it is lost."""

    token: int  # a later leader's is larger

    def load(self) -> Iterable[tuple[str, str]]:
        """Yield all keys in order, with their values, as the leaders before have left them.

        Raises: DamagedError, VolumeError or PeerUnreachableError.
        """

    def commit(self, writes: Sequence[Write]) -> None:
        """Store some writes, in this order; one that dies in between has stored a first part of them.

        Raises: LeadershipLostError: nothing of them counts, or it is not known whether it does.
        """

    def publish(self, address: str) -> None:
        """Tell trainers where this leader serves, as long as it leads.

        Raises: LeadershipLostError.
        """

    def renew(self) -> None:
        """Stay the leader for another time to live.

        Raises: LeadershipLostError: it leads no more.  PeerUnreachableError, VolumeError: it may work the next time.
        """

    def resign(self) -> None:
        """Let another one lead at once; never raises."""


class LeaderStore(typing.Protocol):
    """A place for the state of one job."""

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """Return the leadership when this process has it, or None once `is_stopped` says so.

        Args: note: takes a line for the log: which master leads now.
        Raises: PeerUnreachableError, VolumeError: the store cannot be used.
        """

    def close(self) -> None:
        """Let go of connections."""


class AddressBook(typing.Protocol):
    """Where trainers look for the leader."""

    @property
    def place(self) -> str:
        """The store, as the flag that names it."""

    def list_jobs(self) -> list[str]:
        """Return the names of the jobs that have, or have had, a master in this store; at most MOST_JOBS.

        Raises: PeerUnreachableError, VolumeError: it cannot be read now.
        """

    def find(self) -> str:
        """Return "host:port" of the leader, or an empty text while there is none.

        Raises: PeerUnreachableError, VolumeError: it cannot be read now.
        """

    def wait(self, known: str, timeout: float) -> str:
        """Return the address when it is another one than `known`, or as it is after `timeout` seconds."""

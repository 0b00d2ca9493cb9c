"""Sends notices of changed hosts to rank 0, at once or as soon as the driver knows the addresses of rank 0.

Revisions order the notices, and not times, because the clock of the next driver of a job may be behind.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Collection
from typing import NamedTuple

from paddle_cluster.elastic.membership.decisions import Slot, compare_slots
from paddle_cluster.elastic.worker import WorkerNotificationClient

TELL_S = 0.5  # maximum seconds that host discovery waits until rank 0 has received a notice


class HostsNotice(NamedTuple):
    """A notice of changed hosts.

    Attributes: revision: number of notices of the job up to this notice.  result: flags of `HostUpdateResult`.
    """

    revision: int
    result: int


class Notifier:
    """All notices of a job, and the client of each worker.

    Attributes: base: revision of the newest notice before this generation; the workers need only later notices.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._notices: list[HostsNotice] = []
        self._first = 0  # number of notices of earlier drivers
        self._clients: dict[Slot, WorkerNotificationClient] = {}
        self._expected: frozenset[Slot] = frozenset()  # slots that the workers expect in the next generation
        self.base = 0

    @property
    def revision(self) -> int:
        """The number of notices."""
        return self._first + len(self._notices)

    def continue_from(self, revision: int) -> None:
        """Number the notices after those of an earlier driver."""
        with self._lock:
            self._first = revision

    def begin_generation(self, slots: Collection[Slot]) -> None:
        """Set the slots of a new generation; all earlier notices are obsolete for its workers."""
        with self._lock:
            self._expected = frozenset(slots)
            self.base = self.revision
            self._clients = {slot: client for slot, client in self._clients.items() if slot in self._expected}

    def expects(self, slots: Collection[Slot]) -> bool:
        """Return whether the workers expect these slots, possibly among others, in the next generation."""
        with self._lock:
            return self._expected.issuperset(slots)

    def list_expected(self) -> frozenset[Slot]:
        """Return the slots that the workers expect in the next generation."""
        with self._lock:
            return self._expected

    def post(self, slots: Collection[Slot], result: int) -> HostsNotice:
        """Store a notice about the slots of the next generation; from now on the workers expect these slots.

        Args: slots: slots of the next generation; empty: there are too few slots.  result: the flags of the discovery,
            which are used if `slots` is empty or equal to the expected slots.
        """
        with self._lock:
            if slots:
                result = compare_slots(self._expected, slots) or result
                self._expected = frozenset(slots)
            notice = HostsNotice(self.revision + 1, result)
            self._notices.append(notice)
            return notice

    def find_after(self, revision: int) -> HostsNotice | None:
        """Return the notices after a revision as one notice, or None if there are none.

        The result has the revision of the newest notice and the flags of all notices after the given revision.
        """
        with self._lock:
            newer = self._notices[max(0, revision - self._first) :]
        result = functools.reduce(operator.or_, (one.result for one in newer), 0)
        return newer[-1]._replace(result=result) if newer else None

    def tell_soon(self, client: WorkerNotificationClient, notice: HostsNotice) -> None:
        """Send a notice to rank 0, and wait at most TELL_S seconds, because the host of rank 0 may be lost.

        If the worker does not accept the notice, its client is removed. The next heartbeat of the worker contains its
        addresses, and the driver then sends the missed notice.
        """

        def tell() -> None:
            if client.notify_hosts_updated(notice.revision, notice.result) is False:
                with self._lock:
                    self._clients = {slot: one for slot, one in self._clients.items() if one is not client}

        telling = threading.Thread(target=tell, name="notice", daemon=True)
        telling.start()
        telling.join(TELL_S)

    def add_client(self, slot: Slot, client: WorkerNotificationClient) -> HostsNotice | None:
        """Store the client of the worker of a slot; return the notice that the worker has missed, or None."""
        with self._lock:
            self._clients[slot] = client
            return self.find_after(self.base)

    def find_client(self, slot: Slot) -> WorkerNotificationClient | None:
        """Return the client of the worker of a slot, or None if the worker has not registered."""
        with self._lock:
            return self._clients.get(slot)

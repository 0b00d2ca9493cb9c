"""Sends notices of changed hosts to rank 0, at once or as soon as the driver knows the addresses of rank 0."""

from __future__ import annotations

import threading
from collections.abc import Collection

from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.keyvalue.notices import HostsNotice, NoticeBoard
from paddle_cluster.elastic.membership.decisions import Slot, compare_slots
from paddle_cluster.elastic.worker import WorkerNotificationClient

TELL_S = 0.5  # maximum seconds that host discovery waits until rank 0 has received a notice


class Notifier:
    """The notices of a job, and the client of each worker.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self.board = NoticeBoard()
        self._lock = threading.Lock()
        self._clients: dict[Slot, WorkerNotificationClient] = {}
        self._expected: frozenset[Slot] = frozenset()  # slots that the workers expect in the next generation
        self._base = 0  # revision of the newest notice before this generation; the workers need only later notices

    def begin_generation(self, slots: Collection[Slot]) -> None:
        """Set the slots of a new generation; all earlier notices are obsolete for its workers."""
        with self._lock:
            self._expected = frozenset(slots)
            self._base = self.board.revision
            self._clients = {slot: client for slot, client in self._clients.items() if slot in self._expected}

    def post(self, slots: Collection[Slot], result: int) -> HostsNotice:
        """Store a notice about the slots of the next generation; from now on the workers expect these slots.

        Args: slots: slots of the next generation; empty: there are too few slots.  result: the flags of the discovery,
            which are used if `slots` is empty or equal to the expected slots.
        """
        with self._lock:
            if slots:
                result = compare_slots(self._expected, slots) or result
                self._expected = frozenset(slots)
            return self.board.post(result)

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

    @property
    def base(self) -> int:
        """The revision of the newest notice before this generation."""
        return self._base

    def add_client(self, slot: Slot, client: WorkerNotificationClient) -> HostsNotice | None:
        """Store the client of the worker of a slot; return the notice that the worker has missed, or None."""
        with self._lock:
            self._clients[slot] = client
            return self.board.find_after(self._base)

    def has_client(self, slot: Slot) -> bool:
        """Return whether the addresses of the worker of a slot are known."""
        with self._lock:
            return slot in self._clients

    def find_client(self, slot: SlotInfo) -> WorkerNotificationClient | None:
        """Return the client of the worker of a slot, or None if the worker has not registered."""
        with self._lock:
            return self._clients.get((slot.hostname, slot.local_rank))

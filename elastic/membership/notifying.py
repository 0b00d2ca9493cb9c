"""Tells rank 0 of changes of the hosts, now or when it begins to listen."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from elastic.hosts import SlotInfo
from elastic.keyvalue.notices import HostsNotice, NoticeBoard
from elastic.membership.decisions import Slot, compare_slots
from elastic.worker import WorkerNotificationClient

TELL_S = 0.5  # for which a look for hosts waits until rank 0 has heard of a change


def tell_soon(client: WorkerNotificationClient, notice: HostsNotice) -> None:
    """Tell rank 0 of a change, and wait a moment: if its host is lost, others may come and go meanwhile."""
    told = (notice.timestamp, notice.result)
    telling = threading.Thread(target=client.notify_hosts_updated, args=told, name="notice", daemon=True)
    telling.start()
    telling.join(TELL_S)


class Notifier:
    """The notices of a job, and where each worker hears of them.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self.board = NoticeBoard()
        self._lock = threading.Lock()
        self._clients: dict[Slot, WorkerNotificationClient] = {}
        self._expected: frozenset[Slot] = frozenset()  # what the workers believe the next generation to have
        self._base = 0  # the newest notice when this generation began; its workers know it all

    def begin_generation(self, slots: Collection[Slot]) -> None:
        """Take the slots of a new generation, whose workers know of all changes so far."""
        with self._lock:
            self._expected = frozenset(slots)
            self._base = self.board.revision
            self._clients = {slot: client for slot, client in self._clients.items() if slot in self._expected}

    def post(self, slots: Collection[Slot], result: int) -> HostsNotice:
        """Store that the next generation differs from what the workers expect, and expect it from now on.

        Args: slots: of the next generation; none, if there are too few.  result: the flags of the discovery, which
            count then.
        """
        with self._lock:
            if slots:
                result = compare_slots(self._expected, slots) or result
                self._expected = frozenset(slots)
            return self.board.post(time.time(), result)

    @property
    def base(self) -> int:
        """The revision of the newest notice that this generation knows of."""
        return self._base

    def add_client(self, slot: Slot, client: WorkerNotificationClient) -> HostsNotice | None:
        """Take where the worker of a slot hears of changes; return what it has missed."""
        with self._lock:
            self._clients[slot] = client
            return self.board.find_after(self._base)

    def find_client(self, slot: SlotInfo) -> WorkerNotificationClient | None:
        """Return where the worker of a slot hears of changes, if it has said so."""
        with self._lock:
            return self._clients.get((slot.hostname, slot.local_rank))

"""What workers say to the driver, and what it answers them."""

from __future__ import annotations

import time
from typing import Any

from elastic.hosts import INVALID_SLOT_INFO, SlotInfo
from elastic.keyvalue.notices import NoticeBoard
from elastic.membership.decisions import READY, Slot
from elastic.membership.members import Incarnation, MemberTable
from elastic.membership.notifying import Notifier
from elastic.registration import WorkerStateRegistry
from elastic.worker import WorkerNotificationClient


class WorkerReports:
    """The part of the driver that speaks with workers.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, registry: WorkerStateRegistry, secret: str) -> None:
        self._worker_registry, self._secret = registry, secret
        self._members = MemberTable()
        self._notifier = Notifier()

    def finished(self) -> bool:
        """Return whether the job is over."""
        raise NotImplementedError

    def get_slot_info(self, host: str, slot: int) -> SlotInfo:
        """Return a slot with its ranks, or `INVALID_SLOT_INFO` if it takes no part."""
        raise NotImplementedError

    def has_rank_assignment(self, host: str, slot: int) -> bool:
        """Return whether a slot takes part."""
        return self.get_slot_info(host, slot) is not INVALID_SLOT_INFO

    def get_coordinator_info(self) -> SlotInfo | None:
        """Return the slot of rank 0, if there is one."""
        raise NotImplementedError

    @property
    def notices(self) -> NoticeBoard:
        """All changes of the hosts."""
        return self._notifier.board

    @property
    def known_revision(self) -> int:
        """The newest notice that the workers of this generation know of, because it began after that."""
        return self._notifier.base

    def record_ready(self, host: str, slot: int) -> int:
        """Take that a worker is ready for the next generation, and wait for it; return the one that has ended."""
        return self._worker_registry.record(host, slot, READY, lambda: self.has_rank_assignment(host, slot))

    def query_rank(
        self, host: str, local_rank: int, incarnation: str, generation: int, wait: float
    ) -> tuple[SlotInfo, int] | None:
        """Take that a process is ready for the next generation; return its slot there, and the generation.

        A process that has asked before is answered, and not counted again.

        Args: incarnation: "": that of the slot.  generation: the last one that the process took part in.
        Returns: None: it is not decided within `wait` seconds.
        """
        slot = (host, local_rank)

        def is_member() -> bool:
            return self._find_member(slot, incarnation) is not None and self.has_rank_assignment(host, local_rank)

        newest = self._worker_registry.last_rendezvous()
        is_new = generation >= newest or not generation
        if is_member() and is_new and not self._worker_registry.offer_ready(host, local_rank, wait, is_member):
            return None
        if self.finished() or not is_member():
            return INVALID_SLOT_INFO, self._worker_registry.last_rendezvous()
        return self.get_slot_info(host, local_rank), self._worker_registry.last_rendezvous()

    def record_heartbeat(self, host: str, local_rank: int, incarnation: str, generation: int) -> None:
        """Take that a process lives."""
        member = self._find_member((host, local_rank), incarnation)
        if member is not None:
            member.heard = time.monotonic()

    def record_done(self, host: str, local_rank: int, incarnation: str) -> None:
        """Take that a process has come to the end of its work, so that its exit status 0 means success."""
        member = self._find_member((host, local_rank), incarnation)
        if member is not None:
            member.is_done = True

    def register_worker_addresses(
        self, host: str, local_rank: int, incarnation: str, addresses: list[tuple[str, int]]
    ) -> None:
        """Take where a process hears of changes."""
        if self._find_member((host, local_rank), incarnation) is not None:
            self.register_worker_server(host, local_rank, addresses, self._secret)

    def register_worker_server(self, host: str, slot: int, addresses: Any, secret_key: str) -> None:
        """Take where the worker of a slot hears of changes; rank 0 is told what it has missed."""
        client = WorkerNotificationClient(addresses, secret_key)
        missed = self._notifier.add_client((host, slot), client)
        first = self.get_coordinator_info()
        if missed is not None and first is not None and (first.hostname, first.local_rank) == (host, slot):
            client.notify_hosts_updated(missed.timestamp, missed.result)

    def get_worker_client(self, slot_info: SlotInfo) -> WorkerNotificationClient | None:
        """Return where the worker of a slot hears of changes, if it has said so."""
        return self._notifier.find_client(slot_info)

    def _find_member(self, slot: Slot, incarnation: str) -> Incarnation | None:
        member = self._members.find(slot, incarnation or None)
        return None if member is None or member.is_ended else member

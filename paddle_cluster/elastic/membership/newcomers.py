"""The processes that start during a generation and join a later one; no worker waits for their start.

A newcomer has the variables of a worker, but no place. It asks for the place when it is ready, at the beginning of
`hvd.elastic.run` or with its first collective. Only then the other workers are notified.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence, Set

from paddle_base.runtime import glog
from paddle_cluster.elastic.discovery import HostManager
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.decisions import Slot, keep_slots
from paddle_cluster.elastic.membership.history import NewcomerEntry
from paddle_cluster.elastic.membership.members import Incarnation, MemberTable

# Seconds for which a ready newcomer waits for newcomers that still start. Newcomers of one change start together, and
# each generation costs all workers a sync.
GATHER_S = 3.0
# Seconds for which the slot of a worker that has left after SIGTERM gets no process; longer than the usual grace period
# of a preempted machine, 30 s, on which a new process would be ended, too.
REFILL_S = 60.0


class Newcomers:
    """Decides which newcomers start, and which join the next generation.

    Args: failures_per_host: number of failures at which a host gets no more newcomers.  is_off: whether, as in Horovod,
        new processes start with the generation to which they belong, and all others wait for them.

    Attributes: owed: slots whose workers have failed or left, and whose new workers have not joined.

    Thread safety: the driver calls `list_free`, `fail`, `begin_generation` and `are_owed` while it makes plans, one at
    a time; any thread may call the other methods.
    """

    def __init__(self, members: MemberTable, hosts: HostManager, failures_per_host: int, is_off: bool) -> None:
        self._members, self._hosts, self._limit, self.is_off = members, hosts, failures_per_host, is_off
        self._lock = threading.Lock()
        self._left: dict[Slot, tuple[str, float]] = {}  # by slot: unique id of the host, and time of `time.monotonic`
        self._spent: dict[str, str] = {}  # by host: unique id of the host on which too many newcomers have failed
        self.owed: frozenset[Slot] = frozenset()

    def list_all(self) -> list[Incarnation]:
        """Return the live processes that have no place yet."""
        return [one for one in self._members.list_live(self._hosts.current_hosts.uids) if one.is_awaited]

    def describe(self) -> list[NewcomerEntry]:
        """Return the entries of these processes for the record of the job."""
        found = sorted(self.list_all(), key=lambda one: one.slot)
        return [
            NewcomerEntry(f"{one.host}[{one.local_rank}]", one.name, one.began, one.asked is not None) for one in found
        ]

    def list_ready(self) -> set[Slot]:
        """Return the slots of the newcomers that have asked for their places."""
        return {one.slot for one in self.list_all() if one.asked is not None}

    def is_starting(self) -> bool:
        """Return whether a newcomer has not asked for its place yet."""
        return any(one.asked is None for one in self.list_all())

    def choose(
        self, slots: list[SlotInfo], present: Collection[Slot], holders: Collection[Slot], least: int
    ) -> list[SlotInfo]:
        """Return the slots of the next generation: those of present workers and ready newcomers, if they are enough.

        Args: slots: all slots that may be used, in the order of their ranks.  holders: slots of workers that have the
            state.  least: minimum number of slots; with fewer, all workers wait for new processes in all slots.
        """
        if self.is_off:
            return slots
        chosen = keep_slots(slots, self.list_ready().union(present))
        has_holder = any((one.hostname, one.local_rank) in holders for one in chosen)
        return chosen if has_holder and len(chosen) >= least else slots

    def begin_generation(self, before: Collection[Slot], after: Collection[Slot]) -> None:
        """Record the slots of a generation and of the next one."""
        hosts = self._hosts.current_hosts
        if self.is_off:
            return
        self.owed = frozenset(
            slot
            for slot in self.owed.union(before).difference(after)
            if slot[0] in hosts.available_hosts and slot[1] < hosts.get_slots(slot[0])
        )

    def are_owed(self, present: Set[Slot], following: Set[Slot], expected: Set[Slot]) -> bool:
        """Return whether all workers stay, and those that come only fill the slots of lost ones.

        Args: following: slots of the next generation.  expected: those of the last notice; a newcomer may have ended
            since the notice.
        """
        come = (following | expected) - present
        return present <= following and bool(expected - present) and come <= self.owed

    def list_unwanted(self, slots: Collection[Slot]) -> list[Incarnation]:
        """Return the newcomers outside of the given slots."""
        return [one for one in self.list_all() if one.slot not in slots]

    def list_free(self, slots: Sequence[SlotInfo], taken: Collection[Slot]) -> list[SlotInfo]:
        """Return those of the given slots that get a newcomer now. Args: taken: slots of this generation."""
        busy = {one.slot for one in self.list_all()}.union(taken)
        self._spent = {host: uid for host, uid in self._spent.items() if self._is_there(host, uid)}
        return [
            one
            for one in slots
            if (slot := (one.hostname, one.local_rank)) not in busy
            and slot not in self._left
            and one.hostname not in self._spent
        ]

    def leave(self, member: Incarnation) -> None:
        """Record that a worker leaves; its slot gets no newcomer for `REFILL_S` s, unless the host is replaced."""
        with self._lock:
            self._left[member.slot] = member.host_uid, time.monotonic()

    def end_refusals(self) -> bool:
        """Allow newcomers again in slots whose workers have left long ago, or whose hosts are gone or replaced.

        Returns: whether there are such slots.
        """
        now = time.monotonic()
        with self._lock:
            count = len(self._left)
            self._left = {
                slot: (uid, at)
                for slot, (uid, at) in self._left.items()
                if now - at < REFILL_S and self._is_there(slot[0], uid)
            }
            return len(self._left) < count

    def _is_there(self, host: str, uid: str) -> bool:
        hosts = self._hosts.current_hosts
        return host in hosts.available_hosts and hosts.uids.get(host, uid) == uid

    def fail(self, member: Incarnation, hosts: Collection[str]) -> None:
        """Record that a newcomer has ended before it joined. Args: hosts: the hosts of this generation."""
        host = member.host
        if not self._hosts.is_same(host, member.host_uid) or self._hosts.charge(host) < self._limit:
            return
        if host not in hosts:
            self._hosts.blacklist(host)
            return
        # the workers of the host have not failed, and a blacklist would end them
        self._spent[host] = member.host_uid
        glog.warning(f"{host} gets no more new processes, because too many have failed")

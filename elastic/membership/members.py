"""Which process is in which slot. A process is known by its incarnation, a text that no other process has."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elastic.membership.decisions import Slot


@dataclass(eq=False)
class Incarnation:
    """A process of a worker.

    Attributes: name: unlike that of any other process.  host_uid: which host of this name it was started on, "" where
        the discovery does not say.  generation: in which it was started.  ends: events of which each one ends it.
        heard: when it said last that it lives, in seconds of `time.monotonic`; None: never.  has_state: whether it has
        the state of the job, and could give it to others.  is_silent: the driver has ended it for its silence.
    """

    host: str
    local_rank: int
    name: str
    host_uid: str = ""
    generation: int = 0
    ends: list[threading.Event] = field(default_factory=list)
    is_ended: bool = False
    is_done: bool = False
    heard: float | None = None
    has_state: bool = True
    is_silent: bool = False

    @property
    def slot(self) -> Slot:
        """Host and local rank."""
        return self.host, self.local_rank

    @property
    def is_live(self) -> bool:
        """Whether it runs and is not about to be ended."""
        return not self.is_ended and not any(event.is_set() for event in self.ends)

    def kill(self) -> None:
        """End it alone."""
        self.ends[-1].set()


class MemberTable:
    """The newest process of each slot that takes part.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[Slot, Incarnation] = {}

    def begin(self, slot: Slot, host_uid: str, generation: int, ends: Sequence[threading.Event]) -> Incarnation:
        """Return the next process of a slot; the one before it counts no more.

        Args: ends: events of others that end it; it has one of its own beside them.
        """
        ends = [*ends, threading.Event()]
        return self.add(Incarnation(*slot, secrets.token_hex(8), host_uid, generation, ends))

    def add(self, member: Incarnation) -> Incarnation:
        """Take a process, and return it."""
        with self._lock:
            self._members[member.slot] = member
        return member

    def end(self, member: Incarnation) -> bool:
        """Take that a process has ended; return whether it still counted."""
        with self._lock:
            member.is_ended = True
            return self._members.get(member.slot) is member

    def find(self, slot: Slot, name: str | None = None) -> Incarnation | None:
        """Return the process of a slot: any, or the one of this name."""
        with self._lock:
            member = self._members.get(slot)
        return member if member is None or name in (None, member.name) else None

    def has_state(self, slot: Slot) -> bool:
        """Return whether the worker of a slot could be rank 0, which gives its state to the others."""
        member = self.find(slot)
        return member is not None and member.has_state

    def list_live(self, uids: Mapping[str, str]) -> list[Incarnation]:
        """Return the processes that have not ended and whose host is still the same one.

        Args: uids: of the hosts that there are, as far as they have one.
        """
        with self._lock:
            return [
                one
                for one in self._members.values()
                if one.is_live and uids.get(one.host, one.host_uid) == one.host_uid
            ]

    def keep(self, slots: Collection[Slot]) -> None:
        """Let all processes but those of these slots count no more."""
        with self._lock:
            self._members = {slot: one for slot, one in self._members.items() if slot in slots}

"""The process in each slot. A process of a worker is called an incarnation, and has a unique name."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paddle_cluster.elastic.membership.decisions import Slot


@dataclass(eq=False)
class Incarnation:
    """A process of a worker.

    Attributes:
    - name: unique name of the process.
    - host_uid: unique id of the host on which the process was started; "": the discovery gives no id.
    - generation: generation in which the process was started.
    - ends: each of these events ends the process.
    - heard: time of the last heartbeat in seconds of `time.monotonic`; None: no heartbeat yet.
    - has_state: whether the process has the state of the job and can send the state to other processes.
    - is_silent: whether the driver has ended the process because it was silent.
    - holder: the operating system's process that has called `hvd.init()`; "": none has. The variables of the worker are
      also in its children, which must not take part in its place.
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
    holder: str = ""

    @property
    def slot(self) -> Slot:
        """Host and local rank."""
        return self.host, self.local_rank

    @property
    def is_live(self) -> bool:
        """Whether the process runs and no event ends the process."""
        return not self.is_ended and not any(event.is_set() for event in self.ends)

    def kill(self) -> None:
        """End this process and no other process."""
        self.ends[-1].set()


class MemberTable:
    """The newest process of each slot of the generation.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[Slot, Incarnation] = {}

    def begin(self, slot: Slot, host_uid: str, generation: int, ends: Sequence[threading.Event]) -> Incarnation:
        """Add a new process of a slot, which replaces the previous process of the slot; return the new process.

        Args: ends: shared events that end the process; an additional event ends only this process.
        """
        ends = [*ends, threading.Event()]
        return self.add(Incarnation(*slot, secrets.token_hex(8), host_uid, generation, ends))

    def add(self, member: Incarnation) -> Incarnation:
        """Add a process, and return the process."""
        with self._lock:
            self._members[member.slot] = member
        return member

    def claim(self, member: Incarnation, holder: str) -> str:
        """Give the place of a worker to an operating system's process, if no other one has it; return who has it."""
        with self._lock:
            member.holder = member.holder or holder
            return member.holder

    def end(self, member: Incarnation) -> bool:
        """Record that a process has ended; return whether the process was still a member."""
        with self._lock:
            member.is_ended = True
            return self._members.get(member.slot) is member

    def find(self, slot: Slot, name: str | None = None) -> Incarnation | None:
        """Return the process of a slot, or None; with a name, return only the process of this name."""
        with self._lock:
            member = self._members.get(slot)
        return member if member is None or name in (None, member.name) else None

    def has_state(self, slot: Slot) -> bool:
        """Return whether the worker of a slot can be rank 0, which sends its state to the other ranks."""
        member = self.find(slot)
        return member is not None and member.has_state

    def list_live(self, uids: Mapping[str, str]) -> list[Incarnation]:
        """Return the processes that have not ended and whose host has not been replaced.

        Args: uids: by name of a present host, the unique id of the host, if the id is known.
        """
        with self._lock:
            return [
                one
                for one in self._members.values()
                if one.is_live and uids.get(one.host, one.host_uid) == one.host_uid
            ]

    def keep(self, slots: Collection[Slot]) -> None:
        """Remove all processes except the processes of these slots."""
        with self._lock:
            self._members = {slot: one for slot, one in self._members.items() if slot in slots}

"""The process in each slot, and when it was heard. A process is called an incarnation, and has a unique name."""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from paddle_base.runtime.health.steady_time import steady_time
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
    - is_newcomer: whether the process was started without a place in a generation, for which it has to ask.
    - is_awaited: whether the newcomer has no place yet.
    - asked: time of the newcomer's first question in seconds of `time.monotonic`; None: it is not ready yet.
    - is_leaving: whether the process has received SIGTERM, and leaves at its next commit.
    - holder: the operating system's process that has called `hvd.init()`; "": none has. The variables of the worker are
      also in its children, which must not take part in its place.
    - began: time in seconds since 1970 at which this driver has started the process, or taken it over.
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
    is_newcomer: bool = False
    is_awaited: bool = False
    asked: float | None = None
    is_leaving: bool = False
    holder: str = ""
    began: float = field(default_factory=steady_time)

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

    def drop(self, member: Incarnation) -> None:
        """Remove a process."""
        with self._lock:
            if self._members.get(member.slot) is member:
                del self._members[member.slot]

    def keep(self, slots: Collection[Slot]) -> None:
        """Remove all processes except the processes of these slots."""
        with self._lock:
            self._members = {slot: one for slot, one in self._members.items() if slot in slots}


RESOLUTION_S = 0.1  # minimum seconds between two recorded heartbeat times
GAP_S = 3.0  # longer than the interval between two heartbeats of a worker, which is 2 s
LONG_GAP_S = 1.0  # counted seconds of an interval without any heartbeat that is longer than GAP_S
MOST_TIMES = 10_000


class Hearing:
    """The times at which a driver has received a heartbeat from any worker.

    Args: patience_s: seconds without any heartbeat after which every worker counts as silent; before that time the
        driver itself may be cut off. 0: the driver is never cut off.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._times = [self._last]  # ascending, in seconds of `time.monotonic`
        self._totals = [0.0]  # for each time: sum of the earlier intervals, as `_count` counts them

    def note(self, now: float | None = None) -> None:
        """Record a heartbeat; `now` is in seconds of `time.monotonic`."""
        now = time.monotonic() if now is None else now
        with self._lock:
            self._last = max(self._last, now)
            if self._last - self._times[-1] >= RESOLUTION_S:
                self._totals.append(self._totals[-1] + _count(self._last - self._times[-1]))
                self._times.append(self._last)
            if len(self._times) > MOST_TIMES:
                del self._times[: MOST_TIMES // 2], self._totals[: MOST_TIMES // 2]

    def measure_silence(self, heard: float, now: float) -> float:
        """Return the seconds for which a worker counts as silent; its last heartbeat came at `heard`.

        The silence lasts from `heard` to the last heartbeat of other workers, because only these heartbeats show that
        the driver is not cut off.
        """
        with self._lock:
            if now - self._last > self._patience_s:
                return now - heard
            place = max(0, bisect_right(self._times, heard) - 1)
            before = max(0.0, heard - self._times[place])  # the beginning of an interval, in which the worker was heard
            return max(0.0, self._totals[-1] - self._totals[place] - before)


def _count(gap: float) -> float:
    """Return the seconds that an interval between two heartbeats counts; in a long one the driver may be cut off."""
    return gap if gap <= GAP_S else LONG_GAP_S

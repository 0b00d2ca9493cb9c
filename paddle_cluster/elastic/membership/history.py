"""The history of a job: its generations, the workers that came, went and failed first, and the duration of each change.

The time lost to a change begins when the first worker of a generation fails or waits for the next generation. The time
lost ends when all workers of the next generation have connected. If the workers never connect, the time lost ends when
the next generation begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.membership.decisions import FAILURE, READY, SUCCESS, Slot
from paddle_cluster.elastic.membership.members import MemberTable

MOST_GENERATIONS = 500  # maximum number of generations with a full entry
MOST_NEWCOMERS = 1000  # maximum number of newcomers in a record
MOST_NAMED = 50  # maximum number of names in a list of workers that came or went
WORKS, WAITS, FAILED, DONE = "works", "waits", "failed", "done"
_STATES = {READY: WAITS, FAILURE: FAILED, SUCCESS: DONE}


@dataclass
class MemberEntry:
    """A worker of this generation.

    Attributes:
    - process: name of the process.
    - since: generation in which the process was started.
    - state: one of WORKS, WAITS (for the next generation), FAILED and DONE.
    - exit_code: exit code of a failed process; None: the process has not failed.
    """

    rank: int
    name: str
    process: str
    since: int
    state: str = WORKS
    exit_code: int | None = None


@dataclass
class GenerationEntry:
    """A generation. Times are in seconds since 1970.

    Attributes:
    - formed: time at which all workers had connected; None: some workers have not connected yet.
    - changing: time at which the first worker failed or waited for the next generation; None: no worker has done so.
    - came: names of the workers that the previous generation did not have.
    - went: names of the workers of the previous generation that this generation does not have.
    - failures: number of failed workers.
    - first_name, first_rank, first_code: name, rank and exit code of the worker that failed first; code 0: none failed.
    - first_silent: whether the driver has ended the first failed worker because it was silent.
    - hosts: whether the hosts have changed during the generation.
    - lost: seconds lost to the change that led to this generation.
    """

    number: int
    size: int
    began: float
    formed: float | None = None
    changing: float | None = None
    came: list[str] = field(default_factory=list)
    went: list[str] = field(default_factory=list)
    failures: int = 0
    first_name: str = ""
    first_rank: int = 0
    first_code: int = 0
    first_silent: bool = False
    hosts: bool = False
    lost: float = 0.0


@dataclass
class NewcomerEntry:
    """A process that has not joined the job yet.

    Attributes: began: time of its start in seconds since 1970.  is_ready: whether it has asked for its place.
    """

    name: str
    process: str
    began: float
    is_ready: bool


class JobHistory:
    """Records the decisions of the driver and the reports of the workers.

    Attributes: list_newcomers: returns the processes that have not joined yet.  changed: set after each change.

    Thread safety: every method may be called from any thread; no method waits or calls the driver.
    """

    def __init__(self, now: Callable[[], float] = steady_time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._generations: list[GenerationEntry] = []
        self._forgotten, self._lost = 0, 0.0  # number of generations without an entry, and the seconds lost to them
        self._members: dict[Slot, MemberEntry] = {}
        self._earlier: dict[str, MemberEntry] = {}  # by name of the process: the entry from an earlier driver
        self._joined: set[int] = set()  # ranks whose workers have begun to connect to the newest generation
        self._wanted: tuple[int, float] | None = None  # number of awaited slots, and start of the wait
        self._starting: list[NewcomerEntry] = []  # those of an earlier driver
        self.list_newcomers: Callable[[], list[NewcomerEntry]] = list
        self.changed = threading.Event()

    def wait_for(self, slots: int) -> None:
        """Record that the driver waits for `slots` slots."""
        with self._lock:
            self._wanted = slots, self._now()
        self.changed.set()

    def begin(self, number: int, slots: Iterable[SlotInfo], table: MemberTable) -> None:
        """Record the workers of a generation; a driver that takes over records its generation again."""
        found = {}
        for slot in slots:
            place = slot.hostname, slot.local_rank
            process = table.find(place)
            name, since = ("", number) if process is None else (process.name, process.generation)
            found[place] = MemberEntry(slot.rank, f"{place[0]}[{place[1]}]", name, since)
        with self._lock:
            now, before = self._now(), {one.process: one.name for one in self._members.values()}
            self._wanted, self._members = None, found
            if self._generations and self._generations[-1].number == number:
                for one in found.values():  # an earlier driver has recorded these workers
                    known = self._earlier.get(one.process, one)
                    one.state, one.exit_code = known.state, known.exit_code
            else:
                after = {one.process: one.name for one in found.values()}
                came = [name for process, name in after.items() if process not in before] if self._generations else []
                went = [name for process, name in before.items() if process not in after]
                changing = self._generations[-1].changing if self._generations else None
                entry = GenerationEntry(number, len(found), now, came=came[:MOST_NAMED], went=went[:MOST_NAMED])
                entry.lost = 0.0 if changing is None else max(0.0, now - changing)
                self._generations.append(entry)
                self._joined = set()
                self._forget()
        self.changed.set()

    def join(self, generation: int, rank: int) -> None:
        """Record that the worker of a rank is about to connect to its generation."""
        with self._lock:
            if not self._generations or self._generations[-1].number != generation:
                return
            newest = self._generations[-1]
            if newest.formed is None and 0 <= rank < newest.size:
                self._joined.add(rank)
                if len(self._joined) == newest.size:
                    newest.formed = max(newest.began, self._now())
                    newest.lost += newest.formed - newest.began if len(self._generations) > 1 else 0.0
        self.changed.set()

    def report(self, slot: Slot, state: str) -> None:
        """Record a state that a worker has reported, or that the driver reports for the worker."""
        with self._lock:
            member = self._members.get(slot)
            if member is not None:
                member.state = _STATES.get(state, WORKS)
            if state != SUCCESS:
                self._mark(self._now())
        self.changed.set()

    def fail(self, slot: Slot, exit_code: int, at: float, is_silent: bool = False) -> None:
        """Record that the process of a worker has failed.

        Args: at: time of the failure in seconds since 1970.  is_silent: whether the driver has ended the process
            because it was silent.
        """
        with self._lock:
            member = self._members.get(slot)
            if member is None or not self._generations or member.exit_code is not None:
                return
            member.state, member.exit_code = FAILED, exit_code
            newest = self._generations[-1]
            newest.failures += 1
            if not newest.first_code:
                newest.first_name, newest.first_rank, newest.first_code = member.name, member.rank, exit_code
                newest.first_silent = is_silent
            self._mark(at)
        self.changed.set()

    def note_hosts(self) -> None:
        """Record a change of hosts, after which another generation follows."""
        with self._lock:
            if self._generations:
                self._generations[-1].hosts = True
        self.changed.set()

    def describe(self) -> dict[str, Any]:
        """Return the history as data; see `paddle_cluster.elastic.membership_file`."""
        newcomers = self.list_newcomers()[:MOST_NEWCOMERS]
        with self._lock:
            began = {one.process: one.began for one in self._starting}
            newcomers = [replace(one, began=began.get(one.process, one.began)) for one in newcomers]
            members = list(self._members.values())
            if self._generations and not members:  # this driver has not taken over the workers yet
                members, newcomers = list(self._earlier.values()), self._starting
            return {
                "wanted": None if self._wanted is None else {"slots": self._wanted[0], "since": self._wanted[1]},
                "members": [asdict(one) for one in sorted(members, key=lambda one: one.rank)],
                "joined": len(self._joined),
                "newcomers": [asdict(one) for one in newcomers],
                "generations": [asdict(one) for one in self._generations],
                "forgotten": self._forgotten,
                "lost": self._lost + sum(one.lost for one in self._generations),
            }

    def restore(self, record: dict[str, Any]) -> None:
        """Continue the history that an earlier driver has described."""
        with self._lock:
            self._generations = [GenerationEntry(**one) for one in record["generations"]]
            self._earlier = {one["process"]: MemberEntry(**one) for one in record["members"]}
            self._starting = [NewcomerEntry(**one) for one in record.get("newcomers", [])]
            self._forgotten = record["forgotten"]
            self._lost = max(0.0, record["lost"] - sum(one.lost for one in self._generations))

    def _mark(self, at: float) -> None:
        newest = self._generations[-1] if self._generations else None
        if newest is not None and (newest.changing is None or at < newest.changing):
            newest.changing = max(at, newest.began)

    def _forget(self) -> None:
        old = self._generations[:-MOST_GENERATIONS]
        self._forgotten += len(old)
        self._lost += sum(one.lost for one in old)
        del self._generations[: len(old)]

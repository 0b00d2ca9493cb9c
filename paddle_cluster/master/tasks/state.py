"""The whole state of a master in memory. Only `apply` changes the part that is also in the store."""

from __future__ import annotations

import collections
from dataclasses import dataclass

from paddle_cluster.master.tasks.events import TaskWanted, Ticket
from paddle_cluster.master.tasks.presence import Presence
from paddle_cluster.master.tasks.records import (
    Change,
    DropMember,
    Head,
    MemberEvent,
    MemberNumber,
    PassAccount,
    Phase,
    PutFiles,
    PutTask,
    SaveSlot,
    TaskMember,
)
from paddle_cluster.master.tasks.table import TaskTable

MOST_EVENTS = 100  # maximum number of recorded joins and leaves
MOST_NAMED = 20  # maximum discarded tasks in the line about the end of the job
MOST_CHARACTERS = (
    2500  # maximum characters of the line about the end; `paddle_base.registry.records.MOST_REASON` is larger
)
GAIN, DEVIATION_GAIN = 1 / 8, 1 / 4  # RFC 6298, section 2: alpha and beta
MEANS, DEVIATIONS = 2.0, 4.0  # factors of the mean and of the mean deviation in the limit; RFC 6298 has 1 and 4


@dataclass(frozen=True)
class TaskSettings:
    """The settings from the flags.

    num_passes: number of passes of the job.  failures_max: a task with more failures is discarded for the pass.
    time_least, time_most: bounds of a task's time limit in seconds; `time_most` is used until durations are known.
    member_lease: seconds for a member to reconnect after its connection is lost.
    speculate: whether waiting members get copies of the oldest pending tasks in the last tenth of a pass.
    ranks: if not 0, task i goes only to the member of rank i % ranks, and a pass begins when the members of all ranks
        wait for a task.
    """

    num_passes: int = 1
    failures_max: int = 3
    time_least: float = 10.0
    time_most: float = 1200.0
    member_lease: float = 3.0
    speculate: bool = False
    ranks: int = 0


class DurationEstimate:
    """A moving mean of durations, and of their deviations.

    Args: least, most: bounds of the limit in seconds; `most` is the limit without data.
    """

    def __init__(self, least: float, most: float) -> None:
        self.mean = 0.0
        self.deviation = 0.0
        self.known = 0
        self._least, self._most = min(least, most), most

    def add(self, seconds: float) -> None:
        """Add a duration; it may be wrong by any amount if the dispatch began under a leader with another clock."""
        seconds = min(max(0.0, seconds), self._most)
        if self.known:
            self.deviation += DEVIATION_GAIN * (abs(seconds - self.mean) - self.deviation)
            self.mean += GAIN * (seconds - self.mean)
        else:
            self.mean, self.deviation = seconds, seconds / 2
        self.known += 1

    def limit(self, failures: int) -> float:
        """Return the time limit of a task in seconds. Each failure doubles the limit, which may have been too short."""
        if not self.known:
            return self._most
        plain = max(self._least, MEANS * self.mean + DEVIATIONS * self.deviation)
        return min(self._most, plain * 2.0 ** min(failures, 32))


class MasterState:
    """The tasks, the members, the member that saves the model, and the requests that wait for a task.

    The waiting requests are not stored, because the members repeat them.

    Args: leader: the token of the leader with this state.
    """

    def __init__(self, settings: TaskSettings, leader: int = 0) -> None:
        self.settings = settings
        self.head: Head | None = None
        self.presence = Presence(leader)
        self.table = TaskTable(self.presence.move)
        self.numbers: dict[str, MemberNumber] = {}  # by UID, for the newest incarnation; stays when the member leaves
        self.members: dict[str, TaskMember] = {}  # by UID
        self.save: SaveSlot | None = None
        self.history: collections.deque[MemberEvent] = collections.deque(maxlen=MOST_EVENTS)  # see `recording`
        self.accounts: dict[int, PassAccount] = {}  # by pass
        self.estimate = DurationEstimate(settings.time_least, settings.time_most)
        self.waiting: dict[Ticket, TaskWanted] = {}  # requests that wait for a task, in the order of their arrival
        self._parts: list[tuple[str, ...]] = []  # parts of a file list; the head that refers to them is not stored yet

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, successfully or not."""
        return self.head is not None and self.head.phase in (Phase.DONE, Phase.FAILED)

    @property
    def gives_tasks(self) -> bool:
        """Whether tasks can be assigned now, or later in this pass, or in the next pass."""
        return self.head is not None and self.head.phase is Phase.RUNNING

    @property
    def discarded(self) -> str:
        """A text for the end of the job about the discarded tasks of each pass; "" if no task was discarded."""
        lossy = [one for one in self.accounts.values() if one.discarded]
        if not lossy:
            return ""
        parts, left = [], MOST_NAMED
        for one in lossy:
            names = one.names[:left]
            left -= len(names)
            more = f" and {one.discarded - len(names)} more" if one.discarded > len(names) else ""
            parts.append(f"of pass {one.pass_number} task {', '.join(names)}{more}" if names else more.strip())
        count = sum(one.discarded for one in lossy)
        text = f"the job is done without {count} tasks that have failed too often: {'; '.join(parts)}"
        return f"{text[:MOST_CHARACTERS]}; the model is saved, and the log of the master has the reasons"

    def find_saver(self, now: float) -> TaskMember | None:
        """Return the member that is saving a model; None: there is none, or it has left, has finished or is late."""
        slot = self.save
        if slot is None or self.head is None or slot.until <= now or slot.pass_number <= self.head.saved:
            return None
        member = self.members.get(slot.member.uid)
        return member if member is not None and member.id == slot.member else None

    def wants_saver(self, now: float) -> bool:
        """Return whether the model of the last ended pass must be saved, and no member is saving it.

        Before the end of the last pass, the result is False if no member has ever asked to save a model. Trainers that
        save models ask as soon as a pass has ended.
        """
        head = self.head
        if head is None or head.phase not in (Phase.RUNNING, Phase.SAVING) or head.saved >= head.ended:
            return False
        return (head.phase is Phase.SAVING or self.save is not None) and self.find_saver(now) is None

    def apply(self, change: Change) -> None:
        """Apply a change to the part of the state that is also in the store."""
        if isinstance(change, PutTask):
            self.table.put(change.number, change.record)
        elif isinstance(change, TaskMember):
            self.members[change.id.uid] = change
        elif isinstance(change, MemberNumber):
            self.numbers[change.id.uid] = change
        elif isinstance(change, DropMember):
            self.members.pop(change.uid, None)
        elif isinstance(change, SaveSlot):
            self.save = change
        elif isinstance(change, PassAccount):
            self.accounts[change.pass_number] = change
        elif isinstance(change, PutFiles):
            self._parts += change.tasks
        elif isinstance(change, Head):
            self._put_head(change)

    def _put_head(self, head: Head) -> None:
        before, self.head = self.head, head
        if before is None:
            self.table.files, self._parts = self._parts, []
        if self.table.pass_number != head.pass_number:
            self.table.begin_pass(head.pass_number)

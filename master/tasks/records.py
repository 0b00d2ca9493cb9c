"""What the master knows and stores (pure): each record is one key of the store."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from messages.envelope import MemberId


class TaskStatus(enum.IntEnum):
    """Where a task stands in a pass. The numbers are those of the store."""

    TODO = 0
    PENDING = 1  # given to one member, or to two in the last tenth of a pass
    DONE = 2
    FAILED = 3  # discarded for this pass


class Phase(enum.StrEnum):
    """Where the job stands."""

    RUNNING = "running"
    SAVING = "saving"  # every pass is finished, and the model of the last one is not saved yet
    DONE = "done"  # every pass is finished, and the model is saved
    FAILED = "failed"  # all tasks of a pass have failed


class Hold(NamedTuple):
    """One dispatch of a task. It and TaskRecord are tuples, since a million of them are made when a leader loads.

    request: the member's number of the question that it answers; a question that comes again gets the same task.
    epoch: of the dispatch, counted per task from 1; a report with another one is refused.
    since, deadline: seconds since the epoch. The deadline is not stored: a new leader sets it anew.
    """

    member: MemberId
    request: int
    epoch: int
    since: float
    deadline: float


class TaskRecord(NamedTuple):
    """One task in the pass that it was last given in. In a later pass it is TODO again, and its counters are 0.

    epoch: dispatches ever.  tries: dispatches in this pass.  failures: in this pass.
    holds: the members that have it; of a DONE task the dispatch that finished it.
    took: seconds from dispatch to finish.  samples: that its holder says it has trained.
    repeats: (epoch, samples) of the dispatches of this pass that were reported, but are not what finished the task.
    before: the last pass in which it was finished, and the epoch that did that; -1 and 0 for none.
    """

    pass_number: int
    status: TaskStatus
    epoch: int = 0
    failures: int = 0
    tries: int = 0
    holds: tuple[Hold, ...] = ()
    took: float = 0.0
    samples: int = 0
    repeats: tuple[tuple[int, int], ...] = ()
    before: tuple[int, int] = (-1, 0)


@dataclass(frozen=True, slots=True)
class Head:
    """What there is once; its key is written after everything that it speaks of.

    digest: of the file list, see `dataset`.  config: the digest of the trainers' config, empty if they gave none.
    tasks: how many there are.  reason: why the job has failed.  saved: the last pass whose model is saved, -1 for none.
    """

    digest: str
    config: str
    files: int
    tasks: int
    pass_number: int = 0
    phase: Phase = Phase.RUNNING
    reason: str = ""
    saved: int = -1

    @property
    def ended(self) -> int:
        """The last pass that has ended with a model, -1 for none."""
        return self.pass_number if self.phase in (Phase.SAVING, Phase.DONE) else self.pass_number - 1


@dataclass(frozen=True, slots=True)
class TaskMember:
    """A trainer that has joined. `until`: when its lease ends; None while it is connected."""

    id: MemberId
    joined: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class MemberNumber:
    """The number of a member, which no other one ever has. It outlasts the member, which may come back."""

    id: MemberId
    number: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """The members that have a task at a moment.

    epoch: grows with each view, also from leader to leader.  members: their numbers, in order.
    """

    epoch: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """A member has joined or left, for people: at a time in seconds since the epoch, and why."""

    time: float
    member: MemberId
    number: int
    what: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SaveSlot:
    """Which member may save the model of a pass, and until when no other one may."""

    member: MemberId
    until: float
    pass_number: int


@dataclass(frozen=True, slots=True)
class PassAccount:
    """What a pass came to.

    done, discarded: tasks.  dispatches: of all tasks; those above `done` were repeated, or ended in a discarded task.
    failures: dispatches that ended by a report, a time limit or a lost member.  names: the first discarded tasks.
    samples: of the dispatches that finished a task.  repeated: samples of the other dispatches, as far as they were
    reported: (task, epoch) of these are in `reported`.  A trainer that is killed reports nothing.
    """

    pass_number: int
    done: int
    discarded: int
    dispatches: int
    failures: int
    samples: int
    ended: float
    names: tuple[str, ...] = ()
    repeated: int = 0
    reported: tuple[tuple[int, int], ...] = ()

    @property
    def unreported(self) -> int:
        """How many dispatches have ended without a word; each may have trained any part of its task."""
        return max(0, self.dispatches - self.done - len(self.reported))


# ----- Changes: what a step has decided. Each is one key, and they are stored in order.


@dataclass(frozen=True, slots=True)
class PutTask:
    """Task `number` is as in this record now."""

    number: int
    record: TaskRecord


@dataclass(frozen=True, slots=True)
class PutFiles:
    """The files of some tasks in a row, stored before the head that counts them."""

    digest: str
    number: int
    tasks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PutHead:
    """The head is this now."""

    head: Head


@dataclass(frozen=True, slots=True)
class PutNumber:
    """A member has its number; stored before the member."""

    number: MemberNumber


@dataclass(frozen=True, slots=True)
class PutMember:
    """A member has joined."""

    member: TaskMember


@dataclass(frozen=True, slots=True)
class DropMember:
    """A member is gone."""

    uid: str


@dataclass(frozen=True, slots=True)
class PutSave:
    """The slot of the save is taken."""

    slot: SaveSlot


@dataclass(frozen=True, slots=True)
class PutPass:
    """A pass has ended."""

    account: PassAccount


Change = PutTask | PutFiles | PutHead | PutNumber | PutMember | DropMember | PutSave | PutPass

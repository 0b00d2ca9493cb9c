"""The data that the master stores. Each record is the value of one key of the store."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from paddle_base.messages.envelope import MemberId


class TaskStatus(enum.IntEnum):
    """The state of a task in a pass. The store contains these numbers."""

    TODO = 0
    PENDING = 1  # assigned to one member, or to two members in the last tenth of a pass
    DONE = 2
    FAILED = 3  # discarded for this pass


class Phase(enum.StrEnum):
    """The state of the job."""

    RUNNING = "running"
    SAVING = "saving"  # every pass is finished, and the model of the last pass is not saved yet
    DONE = "done"  # every pass is finished, and the model is saved
    FAILED = "failed"  # all tasks of a pass have failed


class Hold(NamedTuple):
    """One dispatch of a task. Hold and TaskRecord are tuples, because a million of them are created when a leader
    loads.

    request: the number that the member gave its request; a repetition of this request gets the same task.
    epoch: number of the dispatch, counted for each task from 1; a report with another epoch is refused.
    since, deadline: seconds since the epoch. The deadline is not stored: a new leader computes it again.
    """

    member: MemberId
    request: int
    epoch: int
    since: float
    deadline: float


class TaskRecord(NamedTuple):
    """One task in the pass of its last dispatch. In a later pass the task is TODO again, and its counters are 0.

    epoch: number of all dispatches.  tries: dispatches in this pass.  failures: failed dispatches in this pass.
    holds: the dispatches to members that have the task now; for a DONE task the dispatch that finished it.
    took: seconds from dispatch to finish.  samples: trained samples, as the holder of the task reported them.
    repeats: (epoch, samples) of reported dispatches of this pass that did not finish the task.
    before: the last pass in which the task was finished, and the epoch of the dispatch that finished it; (-1, 0): none.
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
    """The single record of the job. The key of this record is written after all keys to which the record refers.

    digest: digest of the file list, see `dataset`.  config: the digest of the trainers' config, or "".
    tasks: number of tasks.  reason: why the job has failed.  saved: the last pass with a saved model, or -1.
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
        """The last pass that has ended and has a model to save, or -1."""
        return self.pass_number if self.phase in (Phase.SAVING, Phase.DONE) else self.pass_number - 1


@dataclass(frozen=True, slots=True)
class TaskMember:
    """A trainer that has joined. `until`: end of its lease; None while the trainer is connected."""

    id: MemberId
    joined: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class MemberNumber:
    """The unique number of a member. The number stays when the member leaves, because the member may rejoin."""

    id: MemberId
    number: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """The members that have a task at a moment.

    epoch: grows with each view, also when another leader takes over.  members: the numbers of these members, in order.
    """

    epoch: int
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """A member has joined or left: the time in seconds since the epoch, and the reason, for users."""

    time: float
    member: MemberId
    number: int
    what: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SaveSlot:
    """The member that may save the model of a pass, and the time until which no other member may save it.

    block: seconds from the grant to that time; a new leader, whose clock may differ, counts them anew.
    """

    member: MemberId
    until: float
    pass_number: int
    block: float


@dataclass(frozen=True, slots=True)
class PassAccount:
    """The result of a pass.

    done, discarded: numbers of tasks.  dispatches: number of dispatches of all tasks; dispatches that finished no task
    were repetitions, or belong to discarded tasks.  failures: dispatches that ended by a report of failure, a time
    limit or a lost member.  names: the first discarded tasks.  samples: samples of the dispatches that finished a task.
    repeated: reported samples of other dispatches, whose (task, epoch) are in `reported`.  A killed trainer reports
    nothing.
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
        """The number of dispatches without a report; each may have trained any part of its task."""
        return max(0, self.dispatches - self.done - len(self.reported))


# ----- Changes: the decisions of a step. Each change concerns one key, and the changes are stored in order. A record
# from above is the change that gives its key this content.


@dataclass(frozen=True, slots=True)
class PutTask:
    """Task `number` has a new record."""

    number: int
    record: TaskRecord


@dataclass(frozen=True, slots=True)
class PutFiles:
    """The files of some successive tasks, stored before the head that counts them."""

    digest: str
    number: int
    tasks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class DropMember:
    """A member has left."""

    uid: str


# the number of a member is stored before the member
Change = PutTask | PutFiles | Head | MemberNumber | TaskMember | DropMember | SaveSlot | PassAccount

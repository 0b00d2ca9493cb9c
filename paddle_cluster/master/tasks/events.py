"""The events that the rules of the master handle, and the answers.

A ticket identifies a request in the server. The rules return the ticket with the answer, at once or later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.records import Change

Ticket = Hashable


@dataclass(frozen=True)
class DatasetGiven:
    """A member has sent a whole file list, grouped into tasks."""

    ticket: Ticket
    digest: str
    config: str
    files: int
    tasks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TaskWanted:
    """A member requests a task of a pass, and waits for it until the time `until`, in seconds since the epoch.

    request: the number that the member gives to this request; a repeated request has the same number.
    """

    ticket: Ticket
    member: MemberId
    request: int
    pass_number: int
    until: float


@dataclass(frozen=True)
class TaskReported:
    """A member reports how a dispatch has ended.

    outcome: finished: the task's records are trained, and every parameter server has acknowledged the training.
        failed: the records cannot be trained.  returned: the member does not continue the task, which is no failure.
    samples: number of trained samples, also of a failed or returned dispatch.
    wanted: a request for the next task, which has the same ticket, or None. The request does not wait for a task,
        because a single answer contains the results of the report and of the request.
    """

    ticket: Ticket
    member: MemberId
    pass_number: int
    number: int
    epoch: int
    outcome: str
    samples: int = 0
    reason: str = ""
    wanted: TaskWanted | None = None


FINISHED, FAILED, RETURNED = "finished", "failed", "returned"
OUTCOMES = (FINISHED, FAILED, RETURNED)


@dataclass(frozen=True)
class SaveWanted:
    """A member asks to save the model of a pass. If it may save, no other member may save for `block` seconds."""

    ticket: Ticket
    member: MemberId
    block: float
    pass_number: int


@dataclass(frozen=True)
class SaveDone:
    """A member has saved the model of a pass."""

    ticket: Ticket
    member: MemberId
    pass_number: int


GRANTED, BUSY, SAVED = "granted", "busy", "saved"


@dataclass(frozen=True)
class MemberIn:
    """A member has joined or rejoined.

    is_new: whether no master of this job has given a number to this process, according to the process itself.
    """

    member: MemberId
    is_new: bool = True


@dataclass(frozen=True)
class MemberOut:
    """A member's connection is lost; it may reconnect until the end of its lease."""

    member: MemberId
    reason: str


@dataclass(frozen=True)
class MemberLeaves:
    """A member leaves, or has certainly ended. The member's tasks are assigned again at once.

    ticket: the request to answer, or None.  is_polite: whether the member has reported that it leaves; its tasks then
    have not failed.
    """

    ticket: Ticket | None
    member: MemberId
    reason: str
    is_polite: bool


@dataclass(frozen=True)
class TimePasses:
    """Some time has passed; time limits and leases may have ended. A new leader also begins with this event."""


Event = (
    DatasetGiven | TaskWanted | TaskReported | SaveWanted | SaveDone | MemberIn | MemberOut | MemberLeaves | TimePasses
)


@dataclass(frozen=True)
class TicketAnswer:
    """Answer a request. `paddle_cluster.master.protocol` defines the fields of `body`."""

    ticket: Ticket
    body: Mapping[str, Any]


@dataclass(frozen=True)
class TicketRefusal:
    """Refuse a request. `code` is one word for programs, `reason` is for users."""

    ticket: Ticket
    code: str
    reason: str


@dataclass(frozen=True)
class MemberWelcome:
    """Accept a member that joins. `number`: the trainer's number; None for a watcher."""

    member: MemberId
    number: int | None


@dataclass(frozen=True)
class JoinRefusal:
    """Refuse a member that joins. `code` is one word for programs, `reason` is for users."""

    member: MemberId
    code: str
    reason: str


@dataclass(frozen=True)
class ViewChange:
    """Send the present view to all members."""


@dataclass(frozen=True)
class Notice:
    """A line for the log."""

    text: str
    is_warning: bool = False


MasterEffect = TicketAnswer | TicketRefusal | MemberWelcome | JoinRefusal | ViewChange | Notice


@dataclass
class StepOutcome:
    """The results of an event: the changes to store, in order, and the effects that follow once they are stored."""

    changes: list[Change] = field(default_factory=list)
    effects: list[MasterEffect] = field(default_factory=list)

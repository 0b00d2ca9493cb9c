"""What happens to the master, and what it answers (pure).

A ticket is what the server knows a question by; the rules hand it back with the answer, now or later.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from master.tasks.records import Change
from messages.envelope import MemberId

Ticket = Hashable


@dataclass(frozen=True)
class DatasetGiven:
    """A member has handed in a whole file list, grouped into tasks."""

    ticket: Ticket
    digest: str
    config: str
    files: int
    tasks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TaskWanted:
    """A member wants a task of a pass, and waits for one until a time.

    request: the member's own number of this question; a repeated question has the same.
    """

    ticket: Ticket
    member: MemberId
    request: int
    pass_number: int
    until: float


@dataclass(frozen=True)
class TaskReported:
    """A member says how a dispatch has ended.

    outcome: finished: its records are trained, and every server has acknowledged that.  failed: they cannot be.
        returned: the member leaves, and has not trained them; that is no failure.
    samples: that were trained, also of a dispatch that has failed or comes back.
    wanted: a question for the next task with the same ticket, or None. It does not wait: there is one answer to both.
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
    """A member wants to save the model of a pass; no other one may for `block` seconds then."""

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
    """A member has joined, or is back."""

    member: MemberId


@dataclass(frozen=True)
class MemberOut:
    """A member's connection is lost; it has until the end of its lease to come back."""

    member: MemberId
    reason: str


@dataclass(frozen=True)
class MemberLeaves:
    """A member goes, or is known to be gone: what it has goes back at once.

    ticket: to answer, None when no member asks.  is_polite: it has said so itself, which is no failure of its tasks.
    """

    ticket: Ticket | None
    member: MemberId
    reason: str
    is_polite: bool


@dataclass(frozen=True)
class TimePasses:
    """Nothing else has happened. Also what a new leader begins with."""


Event = (
    DatasetGiven | TaskWanted | TaskReported | SaveWanted | SaveDone | MemberIn | MemberOut | MemberLeaves | TimePasses
)


@dataclass(frozen=True)
class TicketAnswer:
    """Answer a question with this body of the protocol."""

    ticket: Ticket
    body: Mapping[str, Any]


@dataclass(frozen=True)
class TicketRefusal:
    """Refuse a question. `code` is one word for programs, `reason` is for people."""

    ticket: Ticket
    code: str
    reason: str


@dataclass(frozen=True)
class MemberWelcome:
    """Let a member in that has joined. `number`: of a trainer; None of a watcher."""

    member: MemberId
    number: int | None


@dataclass(frozen=True)
class JoinRefusal:
    """Keep a member out. `code` is one word for programs, `reason` is for people."""

    member: MemberId
    code: str
    reason: str


@dataclass(frozen=True)
class ViewChange:
    """Tell all members of the present view."""


@dataclass(frozen=True)
class Notice:
    """A line for the log."""

    text: str
    is_warning: bool = False


MasterEffect = TicketAnswer | TicketRefusal | MemberWelcome | JoinRefusal | ViewChange | Notice


@dataclass
class StepOutcome:
    """What follows from an event: what is to be stored, in this order, and what is done when it is stored."""

    changes: list[Change] = field(default_factory=list)
    effects: list[MasterEffect] = field(default_factory=list)

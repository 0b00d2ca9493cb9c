"""Pure functions that handle members that join, are lost, rejoin and leave.

The tasks of a lost member change before the member is removed, because the leader may end between two changes.

A process is identified by UID and incarnation, and has one constant number. The process keeps this number if it rejoins
after the end of its lease, and if another leader takes over. Another incarnation of a UID is another process with
another number. It gets the place of the first one when the connection of the first one has ended; the first one is then
refused, because it says that it has had a number. The incarnations have no order (see
`paddle_base.messages.server_core`).
"""

from __future__ import annotations

import dataclasses

from paddle_base.messages.envelope import MemberId
from paddle_base.messages.server_core import HELD, REPLACED
from paddle_cluster.master.tasks import dispatch
from paddle_cluster.master.tasks.events import JoinRefusal, MemberIn, MemberLeaves, MemberOut, MemberWelcome
from paddle_cluster.master.tasks.records import DropMember, MemberEvent, MemberNumber, TaskMember
from paddle_cluster.master.tasks.state import MasterState
from paddle_cluster.master.tasks.turn import Turn

JOINED, LEFT = "joined", "left"


def take_member(turn: Turn, event: MemberIn) -> None:
    """Accept a member that joins or rejoins."""
    state, member = turn.state, event.member
    numbered = state.numbers.get(member.uid)
    known = state.members.get(member.uid)
    if refusal := why_refused(turn, event, numbered.id if numbered else member, known):
        turn.outcome.effects.append(refusal)
        return
    state.presence.back(member)
    if known is not None and known.id != member:
        drop_member(turn, known, f"incarnation {member.incarnation} has taken its place", is_failure=True)
        known = None
    if numbered is None or numbered.id != member:
        numbered = MemberNumber(member, next_number(state))
        turn.change(numbered)
    if known is None:
        turn.change(TaskMember(member, turn.now))
        state.history.append(MemberEvent(turn.now, member, numbered.number, JOINED))
        turn.note(f"{member} has joined as trainer {numbered.number}; members: {len(state.members)}")
    else:
        state.members[member.uid] = dataclasses.replace(known, until=None)
    turn.outcome.effects.append(MemberWelcome(member, numbered.number))


def why_refused(turn: Turn, event: MemberIn, holder: MemberId, known: TaskMember | None) -> JoinRefusal | None:
    """Return the refusal of a process that may not have the place of its UID, or None.

    Args: holder: the process that has, or had, the place.  known: the member of this UID whose lease has not ended.
    """
    member = event.member
    if holder == member:
        return None
    text = f"the place of {member.uid} belongs to its process {holder.incarnation}"
    if not event.is_new:
        return JoinRefusal(member, REPLACED, f"{text}, which has taken it while {member.incarnation} was not connected")
    if known is not None and not turn.state.presence.is_away(known.id):
        # it joined an earlier leader, and its lease gives it time to connect to this one
        return JoinRefusal(member, HELD, f"{text}; waiting until it connects, or until its lease ends")
    return None


def next_number(state: MasterState) -> int:
    """Return the smallest number above all assigned numbers; `state.numbers` has the largest number of each UID."""
    return 1 + max((one.number for one in state.numbers.values()), default=-1)


def take_out(turn: Turn, event: MemberOut) -> None:
    """Record that a member's connection is lost; its lease begins, and the other members do not wait for the member."""
    known = turn.state.members.get(event.member.uid)
    if known is None or known.id != event.member:
        return
    turn.state.presence.leave(event.member)
    until = turn.now + turn.state.settings.member_lease
    turn.state.members[event.member.uid] = dataclasses.replace(known, until=until)


def take_leave(turn: Turn, event: MemberLeaves) -> None:
    """Handle a member that leaves."""
    known = turn.state.members.get(event.member.uid)
    if known is not None and known.id == event.member:
        drop_member(turn, known, event.reason, is_failure=not event.is_polite)
    if event.ticket is not None:
        turn.answer(event.ticket, {})


def drop_member(turn: Turn, member: TaskMember, reason: str, *, is_failure: bool) -> None:
    """Make the tasks of a member assignable again, and remove the member."""
    _refuse_waiting(turn, member.id)
    turn.state.presence.drop([member.id])
    numbers = turn.state.table.held_by(member.id)
    for number in numbers:
        epochs = [hold.epoch for hold in turn.state.table.current(number).holds if hold.member == member.id]
        for epoch in epochs:
            dispatch.take_back(turn, number, epoch, f"{member.id} is gone: {reason}", is_failure=is_failure)
    number = turn.state.numbers[member.id.uid].number
    turn.state.history.append(MemberEvent(turn.now, member.id, number, LEFT, reason))
    turn.state.presence.back(member.id)
    turn.change(DropMember(member.id.uid))
    turn.note(
        f"{member.id} is gone: {reason}; its {len(numbers)} tasks are taken back; members: {len(turn.state.members)}",
        is_warning=is_failure,
    )


def _refuse_waiting(turn: Turn, member: MemberId) -> None:
    waiting = turn.state.waiting
    for ticket in [ticket for ticket, wanted in waiting.items() if wanted.member == member]:
        del waiting[ticket]
        turn.refuse(ticket, "member", f"the lease of {member} has ended; join again")

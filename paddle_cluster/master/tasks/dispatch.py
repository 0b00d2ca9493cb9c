"""Assigns tasks to waiting members, takes tasks back, and ends passes. The functions use no I/O and no clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_cluster.master.tasks.events import TaskWanted
from paddle_cluster.master.tasks.records import Hold, Phase, PutTask, TaskStatus
from paddle_cluster.master.tasks.state import MasterState
from paddle_cluster.master.tasks.turn import Turn

LAST_PART = 10  # copies are assigned when no task is TODO and at most a tenth of all tasks is pending

# the states of an answer to "get_task"
TASK, WAIT, PASS_END, JOB_DONE, JOB_FAILED = "task", "wait", "pass_end", "done", "failed"
_ENDS = {Phase.DONE: JOB_DONE, Phase.FAILED: JOB_FAILED}


def make_task_answer(state: MasterState, kind: str, **more: Any) -> dict[str, Any]:
    """Return an answer to "get_task" of this kind; `more` has the task if the kind is TASK."""
    head = state.head
    number, reason = (head.ended + 1, head.reason) if head else (0, "")
    if kind == JOB_DONE:
        reason = state.discarded
    return {"state": kind, "pass": number, "task": None, "reason": reason, **more}


def answer_repeated(turn: Turn, wanted: TaskWanted) -> bool:
    """Answer a repeated request with the task of the first request; return whether the member has that task."""
    found = turn.state.table.find_request(wanted.member, wanted.request)
    if found is not None:
        number, hold = found
        _answer_grant(turn, wanted, number, hold.epoch, hold.deadline)
    return found is not None


def answer_ended(turn: Turn) -> None:
    """Answer each member for which the pass or the job has ended. Afterwards `step` assigns tasks."""
    _answer_waiting(turn, lambda wanted: why_ended(turn.state, wanted, turn.now))


def answer_impatient(turn: Turn) -> None:
    """Answer each member whose waiting time has ended without a task. `step` has assigned tasks before this call."""
    _answer_waiting(turn, lambda wanted: WAIT if turn.now >= wanted.until else "")


def _answer_waiting(turn: Turn, judge: Callable[[TaskWanted], str]) -> None:
    for ticket, wanted in list(turn.state.waiting.items()):
        kind = judge(wanted)
        if kind:
            del turn.state.waiting[ticket]
            turn.answer(ticket, make_task_answer(turn.state, kind))


def why_ended(state: MasterState, wanted: TaskWanted, now: float) -> str:
    """Return how the pass or the job has ended for a member that requests a task, else "".

    If no member saves a model that must be saved, a pass also counts as ended; the requesting member may then save the
    model. Otherwise, after the last pass, the requesting member waits for the end of the job.
    """
    head = state.head
    if head is not None and head.phase in _ENDS:
        return _ENDS[head.phase]
    if head is not None and wanted.pass_number <= head.ended:
        return PASS_END
    return PASS_END if state.wants_saver(now) else ""


def give_tasks(turn: Turn) -> None:
    """Assign the TODO tasks to waiting members, in the order of their requests."""
    state = turn.state
    if not state.gives_tasks:
        return
    if state.settings.ranks:
        _give_by_rank(turn)
        return
    while state.waiting and (number := state.table.next_todo()) is not None:
        wanted = next((one for one in state.waiting.values() if _can_take(state, one)), None)
        if wanted is None:
            return
        _give(turn, number, wanted)


def give_copies(turn: Turn) -> None:
    """Assign copies of the oldest pending tasks to waiting members, in the last part of a pass."""
    state, table = turn.state, turn.state.table
    if not state.settings.speculate or not state.gives_tasks or table.next_todo() is not None:
        return
    if len(table.pending) > max(1, len(table.files) // LAST_PART):
        return
    for wanted in [one for one in state.waiting.values() if _can_take(state, one)]:
        number = _find_slow(turn, wanted.member)
        if number is not None:
            _give(turn, number, wanted)


def take_back(turn: Turn, number: int, epoch: int, reason: str, *, is_failure: bool) -> None:
    """End a dispatch that has not succeeded; the task is assigned again, or discarded for this pass."""
    table = turn.state.table
    record = table.current(number)
    failures = record.failures + is_failure
    left = tuple(hold for hold in record.holds if hold.epoch != epoch)
    if left:
        status = TaskStatus.PENDING
    elif failures > turn.state.settings.failures_max:
        status = TaskStatus.FAILED
        turn.note(
            f"task {table.name(number)} is discarded for pass {record.pass_number}: it has failed {failures} times, "
            f"at last because {reason}",
            is_warning=True,
        )
    else:
        status = TaskStatus.TODO
    turn.change(PutTask(number, record._replace(status=status, failures=failures, holds=left)))


def end_pass(turn: Turn) -> bool:
    """End the pass if none of its tasks is TODO or PENDING; return whether the pass has ended."""
    state, table = turn.state, turn.state.table
    head = state.head
    if head is None or not state.gives_tasks or table.todo or table.pending:
        return False
    account = table.account(turn.now)
    turn.change(account)
    turn.note(
        f"pass {head.pass_number} is done: {account.done} tasks finished, {account.discarded} discarded, "
        f"{account.dispatches} dispatched, {account.samples} samples",
        is_warning=account.discarded > 0,
    )
    if not account.done:
        reason = f"all {len(table.files)} tasks of pass {head.pass_number} have failed; see the log for the reasons"
        turn.change(dataclasses.replace(head, phase=Phase.FAILED, reason=reason))
    elif head.pass_number + 1 >= state.settings.num_passes:
        turn.change(dataclasses.replace(head, phase=Phase.SAVING))
    else:
        turn.change(dataclasses.replace(head, pass_number=head.pass_number + 1))
    return True


# -----


def _can_take(state: MasterState, wanted: TaskWanted) -> bool:
    """Return whether a waiting member is connected, and waits for a task of the present pass."""
    is_connected = state.members[wanted.member.uid].until is None
    return is_connected and state.head is not None and wanted.pass_number == state.head.pass_number


def _give_by_rank(turn: Turn) -> None:
    """Assign task i of a pass to the member of rank i modulo the number of ranks; each member gets its tasks in order.

    The first tasks of a pass are assigned in one step when all members wait. No member therefore begins a pass alone.
    """
    state, table, ranks = turn.state, turn.state.table, turn.state.settings.ranks
    members = sorted(state.members.values(), key=lambda one: state.numbers[one.id.uid].number)[:ranks]
    waiting = {wanted.member: wanted for wanted in state.waiting.values() if _can_take(state, wanted)}
    has_begun = table.sums.dispatches > 0
    if len(members) < ranks or not (has_begun or all(one.id in waiting for one in members)):
        return
    for rank, member in enumerate(members):
        if member.id in waiting:
            own = range(rank, len(table.files), ranks)
            number = next((one for one in own if table.current(one).status is TaskStatus.TODO), None)
            if number is not None:
                _give(turn, number, waiting[member.id])


def _give(turn: Turn, number: int, wanted: TaskWanted) -> None:
    state = turn.state
    record = state.table.current(number)
    deadline = turn.now + state.estimate.limit(record.failures)
    hold = Hold(wanted.member, wanted.request, record.epoch + 1, turn.now, deadline)
    given = record._replace(
        status=TaskStatus.PENDING,
        epoch=hold.epoch,
        tries=record.tries + 1,
        holds=(*record.holds, hold),
    )
    turn.change(PutTask(number, given))
    state.waiting.pop(wanted.ticket, None)
    _answer_grant(turn, wanted, number, hold.epoch, deadline)


def _answer_grant(turn: Turn, wanted: TaskWanted, number: int, epoch: int, deadline: float) -> None:
    files = list(turn.state.table.files[number])
    task = {"id": number, "epoch": epoch, "limit": max(0.0, deadline - turn.now), "files": files}
    turn.answer(wanted.ticket, make_task_answer(turn.state, TASK, task=task))


def _find_slow(turn: Turn, member: MemberId) -> int | None:
    """Return the oldest pending task of which `member` can usefully get a copy, or None.

    Exactly one member has the task: another member, which has had it for longer than the mean duration.
    """
    table, mean = turn.state.table, turn.state.estimate.mean
    if not turn.state.estimate.known:
        return None
    for number in table.pending:
        holds = table.current(number).holds
        if len(holds) == 1 and holds[0].member.uid != member.uid and turn.now - holds[0].since > mean:
            return number
    return None

"""The rules of the master: `step` changes the state, and returns what the caller has to store and to answer.

    outcome = step(state, event, now)
    store(outcome.changes); answer(outcome.effects)

A leader may end between two changes. The changes therefore have an order that leaves a consistent state in the store
after each change. A task changes before the pass that it ends, the tasks of a lost member change before the member, and
the file list is stored before the head that counts its files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from paddle_cluster.master.tasks import dispatch
from paddle_cluster.master.tasks.dataset import split_tasks
from paddle_cluster.master.tasks.events import (
    BUSY,
    FINISHED,
    GRANTED,
    RETURNED,
    SAVED,
    DatasetGiven,
    Event,
    MemberIn,
    MemberLeaves,
    MemberOut,
    SaveDone,
    SaveWanted,
    StepOutcome,
    TaskReported,
    TaskWanted,
    TimePasses,
    ViewChange,
)
from paddle_cluster.master.tasks.membership import drop_member, take_leave, take_member, take_out
from paddle_cluster.master.tasks.records import (
    Head,
    Hold,
    Phase,
    PutFiles,
    PutTask,
    SaveSlot,
    TaskStatus,
)
from paddle_cluster.master.tasks.state import MasterState
from paddle_cluster.master.tasks.turn import Turn

MOST_REPEATS = 100  # maximum counted repetitions of a task in a pass; this bounds the size of the store
MOST_REPORTED = 10_000  # maximum counted repetitions of all tasks in a pass, including reports after its end


def step(state: MasterState, event: Event, now: float) -> StepOutcome:
    """Apply an event. `now`: the time in seconds since the epoch."""
    turn = Turn(state, now)
    _RULES[type(event)](turn, event)
    has_ended = dispatch.end_pass(turn)  # any event may end the pass
    both = event.ticket if isinstance(event, TaskReported) and event.wanted is not None else None
    asks = both is not None or isinstance(event, (TimePasses, TaskWanted))
    if asks or has_ended or isinstance(event, SaveDone):
        dispatch.answer_ended(turn)
    dispatch.give_tasks(turn)
    if asks:
        dispatch.give_copies(turn)
        dispatch.answer_impatient(turn)
    if both is not None:
        turn.join_answers(both)
    if state.presence.settle(state.table.is_held_by, lambda member: state.numbers[member.uid].number):
        turn.outcome.effects.append(ViewChange())
    return turn.outcome


# ----- The data set


def _take_dataset(turn: Turn, event: DatasetGiven) -> None:
    state = turn.state
    if state.head is not None:
        fault = why_other_dataset(state.head, event.digest, event.files) or why_other_config(state.head, event.config)
        if fault:
            turn.refuse(event.ticket, "dataset", fault)
        else:
            turn.answer(event.ticket, describe_dataset(state.head))
        return
    if not event.tasks:
        turn.refuse(event.ticket, "empty", "the file list is empty; name at least one file")
        return
    for number, part in enumerate(split_tasks(event.tasks)):
        turn.change(PutFiles(event.digest, number, part))
    head = Head(event.digest, event.config, event.files, len(event.tasks))
    turn.change(head)
    turn.note(f"the data set has {event.files} files in {len(event.tasks)} tasks, digest {event.digest[:16]}")
    turn.answer(event.ticket, describe_dataset(head))


def describe_dataset(head: Head) -> Mapping[str, Any]:
    """Return the answer to a file list that equals the job's list."""
    return {"state": "known", "next": head.files, "pass": head.pass_number}


def why_other_dataset(head: Head, digest: str, files: int) -> str:
    """Return why a file list differs from the job's list, or "" if the lists are equal."""
    if digest == head.digest:
        return ""
    return (
        f"this file list has {files} files and digest {digest[:16]}; the list of the job's first trainer has "
        f"{head.files} files and digest {head.digest[:16]}: give every trainer the same files in the same order"
    )


def why_other_config(head: Head, config: str) -> str:
    """Return why a trainer's config differs from the job's, or "" if the two are equal or one of them is unknown."""
    if config and head.config and config != head.config:
        return (
            f"this trainer's config has digest {config[:16]}; the config of the job's first trainer has digest "
            f"{head.config[:16]}: give every trainer the same config"
        )
    return ""


# ----- A task for the requesting member


def _take_wanted(turn: Turn, event: TaskWanted) -> None:
    turn.state.presence.want(event.member)
    known = turn.state.members.get(event.member.uid)
    if known is None or known.id != event.member:
        turn.refuse(event.ticket, "member", f"{event.member} has not joined, or its lease has ended; join again")
    elif not dispatch.answer_repeated(turn, event):
        turn.state.waiting[event.ticket] = event


# ----- The end of a dispatch


def _take_report(turn: Turn, event: TaskReported) -> None:
    table = turn.state.table
    if not 0 <= event.number < len(table.files):
        turn.refuse(event.ticket, "task", f"there is no task {event.number}; the data set has {len(table.files)} tasks")
        return
    reason = _judge_report(turn, event)
    turn.answer(event.ticket, {"accepted": not reason, "reason": reason, "next": None})
    if event.wanted is not None:
        _take_wanted(turn, event.wanted)


def _judge_report(turn: Turn, event: TaskReported) -> str:
    """Apply a report; return why the report is refused, or ""."""
    table = turn.state.table
    record = table.records.get(event.number)
    if record is not None and (event.pass_number, event.epoch) == record.before:
        return ""  # a repeated report; its pass has ended meanwhile
    hold = _find_hold(record.holds if record else (), event)
    if record is None or hold is None:
        reason = _why_stale(turn.state, event)
        report = f"the report '{event.outcome}' of {event.member}"
        turn.note(f"task {event.number}, epoch {event.epoch}: {report} is refused: {reason}")
        _count_repeated(turn, event)
        return reason
    if record.status is TaskStatus.DONE:  # a repeated report, whose answer was lost
        return ""
    if event.outcome != RETURNED:
        turn.state.presence.report(event.member, turn.now)
    if event.outcome == FINISHED:
        took = turn.now - hold.since
        turn.state.estimate.add(took)
        done = record._replace(status=TaskStatus.DONE, holds=(hold,), took=took, samples=event.samples)
        turn.change(PutTask(event.number, done))
    else:
        reason = f"{event.member} says: {event.reason}"
        dispatch.take_back(turn, event.number, hold.epoch, reason, is_failure=event.outcome != RETURNED)
        _count_repeated(turn, event)
    return ""


def _count_repeated(turn: Turn, event: TaskReported) -> None:
    """Add the samples of a dispatch that did not finish its task to the account of its pass, but only once.

    If the report arrives after its pass has ended, the stored account of that pass changes.
    """
    state = turn.state
    record, account = state.table.current(event.number), state.accounts.get(event.pass_number)
    if account is not None:
        key = (event.number, event.epoch)
        if key not in account.reported and len(account.reported) < MOST_REPORTED:
            reported, repeated = (*account.reported, key), account.repeated + event.samples
            turn.change(dataclasses.replace(account, repeated=repeated, reported=reported))
    elif event.pass_number == state.table.pass_number:
        known = {epoch for epoch, _ in record.repeats}
        if event.epoch not in known and len(known) < MOST_REPEATS:
            repeats = (*record.repeats, (event.epoch, event.samples))
            turn.change(PutTask(event.number, record._replace(repeats=repeats)))


def _find_hold(holds: tuple[Hold, ...], event: TaskReported) -> Hold | None:
    return next((one for one in holds if (one.member, one.epoch) == (event.member, event.epoch)), None)


def _why_stale(state: MasterState, event: TaskReported) -> str:
    record = state.table.current(event.number)
    if record.status is TaskStatus.DONE:
        return f"{record.holds[0].member} has finished the task with epoch {record.holds[0].epoch}"
    if record.status is TaskStatus.PENDING:
        others = ", ".join(f"{hold.member} with epoch {hold.epoch}" for hold in record.holds)
        return f"the time limit of the task was over, or its trainer was lost; the task is assigned to {others} now"
    return "the time limit of the task was over, or its trainer was lost; the task will be assigned again"


# ----- Time limits of tasks, leases of members


def _take_time(turn: Turn, event: TimePasses) -> None:
    turn.state.presence.expire(turn.now)
    for number, hold in turn.state.table.take_expired(turn.now):
        taken = turn.now - hold.since
        reason = f"{hold.member} had the task for {taken:.1f} s, and the limit was {hold.deadline - hold.since:.1f} s"
        turn.note(f"task {number}, epoch {hold.epoch} is taken back: {reason}", is_warning=True)
        dispatch.take_back(turn, number, hold.epoch, reason, is_failure=True)
    for member in [one for one in turn.state.members.values() if one.until is not None and one.until <= turn.now]:
        drop_member(turn, member, "its connection was lost, and it did not reconnect within its lease", is_failure=True)


# ----- One member saves the model of a pass


def _take_save(turn: Turn, event: SaveWanted) -> None:
    state, head = turn.state, turn.state.head
    known = state.members.get(event.member.uid)
    if known is None or known.id != event.member:
        turn.refuse(event.ticket, "member", f"{event.member} has not joined, or its lease has ended; join again")
        return
    if head is None or event.pass_number > head.ended:
        turn.refuse(event.ticket, "pass", f"pass {event.pass_number} has not ended yet")
        return
    saver = state.find_saver(turn.now)
    if event.pass_number <= head.saved or event.pass_number < head.ended:
        answer = SAVED
    elif saver is not None and saver.id != event.member:
        answer = BUSY
    else:
        answer = GRANTED
        turn.change(SaveSlot(event.member, turn.now + event.block, event.pass_number, event.block))
        turn.note(f"{event.member} saves the model of pass {event.pass_number}")
    turn.answer(event.ticket, {"state": answer})


def _take_saved(turn: Turn, event: SaveDone) -> None:
    head, slot = turn.state.head, turn.state.save
    if head is not None and event.pass_number <= head.saved:  # a repeated report, whose answer was lost
        turn.answer(event.ticket, {"accepted": True, "reason": ""})
        return
    if head is None or slot is None or (slot.member, slot.pass_number) != (event.member, event.pass_number):
        reason = f"{event.member} is not the trainer that saves the model of pass {event.pass_number}"
        turn.answer(event.ticket, {"accepted": False, "reason": reason})
        return
    is_last = head.phase is Phase.SAVING and event.pass_number >= head.pass_number
    phase = Phase.DONE if is_last else head.phase
    if head.saved + 1 < event.pass_number:
        first, last = head.saved + 1, event.pass_number - 1
        which = f"pass {first} is" if first == last else f"the passes {first} to {last} are"
        turn.note(f"the model of {which} not saved, because a later pass has ended", is_warning=True)
    turn.change(dataclasses.replace(head, saved=event.pass_number, phase=phase))
    turn.note(f"{event.member} has saved the model of pass {event.pass_number}")
    turn.answer(event.ticket, {"accepted": True, "reason": ""})


_RULES: Mapping[type, Callable[[Turn, Any], None]] = {
    DatasetGiven: _take_dataset,
    TaskWanted: _take_wanted,
    TaskReported: _take_report,
    SaveWanted: _take_save,
    SaveDone: _take_saved,
    MemberIn: take_member,
    MemberOut: take_out,
    MemberLeaves: take_leave,
    TimePasses: _take_time,
}

"""Pure functions that convert the state to keys and values of the store, and back.

    state                              the record of the whole job, called the head
    files/DIGEST/NUMBER                the files of some successive tasks; DIGEST has 16 digits
    task/NUMBER                        a task that was assigned at least once
    pass/NUMBER                        the account of a pass
    member/UID                         a member
    number/UID                         the number of a member, also after it has left
    save                               the member that may save the model, and the pass

Values are JSON. The values of tasks are lists, because a million lists load in seconds. A key to which no head refers
is ignored, e.g. a file list whose writer ended early.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any

from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.bounded_json import dump_compact
from paddle_base.runtime.errors import DamagedError
from paddle_cluster.master.tasks.records import (
    Change,
    DropMember,
    Head,
    Hold,
    MemberNumber,
    PassAccount,
    Phase,
    PutFiles,
    PutTask,
    SaveSlot,
    TaskMember,
    TaskRecord,
    TaskStatus,
)
from paddle_cluster.master.tasks.state import MasterState, TaskSettings

UNKNOWN_BLOCK_S = 60.0  # seconds of a save slot that a master of an earlier release has stored without its length
VERSION = 3  # version of the format of the stored state
AT_ONCE = 10_000  # values that are parsed in one call, which is three times as fast as separate calls
MOST_TOOK = 1000  # maximum number of stored durations from which a new leader estimates time limits
STATUSES = tuple(TaskStatus)

Write = tuple[str, str | None]  # a key and its value; the value None deletes the key


def encode_change(change: Change) -> Write:
    """Return the key and value of a change."""
    if isinstance(change, PutTask):
        return f"task/{change.number:08d}", dump_compact(_list_task(change.record))
    if isinstance(change, Head):
        return "state", dump_compact({"version": VERSION, **dataclasses.asdict(change)})
    if isinstance(change, PutFiles):
        return f"files/{change.digest[:16]}/{change.number:08d}", dump_compact(change.tasks)
    if isinstance(change, MemberNumber):
        return _member_key("number", change.id.uid), dump_compact([*change.id, change.number])
    if isinstance(change, TaskMember):
        return _member_key("member", change.id.uid), dump_compact([*change.id, change.joined])
    if isinstance(change, DropMember):
        return _member_key("member", change.uid), None
    if isinstance(change, PassAccount):
        return f"pass/{change.pass_number:08d}", dump_compact(dataclasses.asdict(change))
    return "save", dump_compact([*change.member, change.until, change.pass_number, change.block])


def decode_state(settings: TaskSettings, pairs: Iterable[tuple[str, str]], now: float, leader: int = 0) -> MasterState:
    """Return the stored state; time limits and leases restart at `now`.

    Args: pairs: keys and values, in the order of the keys.  leader: the token of the leader that loads the state.
    Raises: DamagedError: this program has not written one of the values.
    """
    state = MasterState(settings, leader)
    try:
        _load(state, iter(pairs), now)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as exc:
        raise DamagedError(
            f"the stored state of the master is damaged: {type(exc).__name__}: {exc}; restore the store, or begin the "
            "job anew with an empty one"
        ) from exc
    return state


def _load(state: MasterState, pairs: Iterator[tuple[str, str]], now: float) -> None:
    parts: dict[str, list[tuple[str, str]]] = {}
    tasks: Iterator[tuple[str, str]] = iter(())
    for key, value in pairs:
        kind = key.partition("/")[0]
        if kind == "task":  # tasks are the last and largest kind; they are parsed while the store reads more
            tasks = itertools.chain([(key, value)], pairs)
            break
        parts.setdefault(kind, []).append((key, value))
    _load_members(state, parts, now)
    head = next((fields for _, fields in _parse(parts.get("state", ()))), None)
    if head is None:
        return
    if head.pop("version") != VERSION:
        raise ValueError(f"the version of the state is not {VERSION}")
    state.head = Head(**{**head, "phase": Phase(head["phase"])})
    _load_files(state, state.head, parts.get("files", ()))
    _load_tasks(state, state.head, tasks, now)


def _load_members(state: MasterState, parts: dict[str, list[tuple[str, str]]], now: float) -> None:
    lease = state.settings.member_lease
    for _, (uid, incarnation, number) in _parse(parts.get("number", ())):
        state.numbers[uid] = MemberNumber(MemberId(uid, incarnation), number)
    for _, (uid, incarnation, joined) in _parse(parts.get("member", ())):
        if uid not in state.numbers:
            raise ValueError(f"member {uid} has no number")
        state.members[uid] = TaskMember(MemberId(uid, incarnation), joined, now + lease)
    for _, (uid, incarnation, _, pass_number, *blocks) in _parse(parts.get("save", ())):
        # the stored end is a time of the earlier leader's clock, so the slot begins anew by the clock of this one
        block = blocks[0] if blocks else UNKNOWN_BLOCK_S
        state.save = SaveSlot(MemberId(uid, incarnation), now + block, pass_number, block)
    for _, fields in _parse(parts.get("pass", ())):
        reported = tuple((number, epoch) for number, epoch in fields["reported"])
        account = PassAccount(**{**fields, "names": tuple(fields["names"]), "reported": reported})
        state.accounts[account.pass_number] = account


def _load_files(state: MasterState, head: Head, pairs: Iterable[tuple[str, str]]) -> None:
    mine = f"files/{head.digest[:16]}/"
    files = state.table.files
    for _, tasks in _parse(one for one in pairs if one[0].startswith(mine)):
        files += map(tuple, tasks)
    if len(files) != head.tasks:
        raise ValueError(f"the store has the files of {len(files)} tasks instead of {head.tasks}")


def _load_tasks(state: MasterState, head: Head, pairs: Iterable[tuple[str, str]], now: float) -> None:
    table = state.table
    table.begin_pass(head.pass_number)
    took: collections.deque[float] = collections.deque(maxlen=MOST_TOOK)
    pending: list[tuple[int, TaskRecord]] = []
    for key, fields in _parse(pairs):
        record = _read_task(fields)
        number = int(key[5:])
        if number >= head.tasks:
            raise ValueError(f"task {number} of {head.tasks}")
        if record.status is TaskStatus.DONE:
            took.append(record.took)
        if record.status is TaskStatus.PENDING and record.pass_number == head.pass_number:
            pending.append((number, record))
        else:
            table.restore(number, record)
    for seconds in took:
        state.estimate.add(seconds)
    for number, record in pending:  # now the durations of the done tasks are known, which determine the time limits
        limit = state.estimate.limit(record.failures)
        # a start in the future comes from the clock of an earlier leader, which was ahead
        holds = tuple(hold._replace(since=min(hold.since, now), deadline=now + limit) for hold in record.holds)
        table.restore(number, record._replace(holds=holds))


def _list_task(record: TaskRecord) -> list[Any]:
    return [
        record.pass_number,
        record.status.value,
        record.epoch,
        record.failures,
        record.tries,
        round(record.took, 6),
        record.samples,
        [[hold.member.uid, hold.member.incarnation, hold.request, hold.epoch, hold.since] for hold in record.holds],
        record.repeats,
        record.before,
    ]


def _read_task(fields: list[Any]) -> TaskRecord:
    number, status, epoch, failures, tries, took, samples, holds, repeats, (last, last_epoch) = fields
    held = tuple([Hold(MemberId(uid, count), request, of, since, 0.0) for uid, count, request, of, since in holds])
    again = tuple([(one, trained) for one, trained in repeats]) if repeats else ()
    return TaskRecord(number, STATUSES[status], epoch, failures, tries, held, took, samples, again, (last, last_epoch))


def _member_key(kind: str, uid: str) -> str:
    return f"{kind}/{urllib.parse.quote(uid, safe='')}"


def _parse(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """Yield the keys with their parsed values."""
    left = iter(pairs)
    while some := list(itertools.islice(left, AT_ONCE)):
        values = json.loads(f"[{','.join([text for _, text in some])}]")
        if len(values) != len(some):
            raise ValueError("a value is not JSON")
        yield from zip([key for key, _ in some], values, strict=True)

"""The fields of the file OUTPUT/tasks.json, which a leading master writes once a second, and functions to show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paddle_base.runtime import status_files
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import DamagedError
from paddle_base.runtime.schema import Fields, Integer, Items, Maybe, Number, SchemaError, Text, Word, parse_object
from paddle_base.runtime.status_files import MOST_ROWS, clock, describe_duration, tabulate
from paddle_cluster.master.protocol import HOLDER_FIELDS, MEMBER_FIELDS, PASS_FIELDS
from paddle_cluster.master.summary import MOST_NAME, MOST_RECORDED
from paddle_cluster.master.tasks.membership import JOINED, LEFT
from paddle_cluster.master.tasks.records import Phase
from paddle_cluster.master.tasks.state import MOST_EVENTS

NAME = "tasks.json"
VERSION = 1
MOST_BYTES, MOST_DEPTH, MOST_VALUES = 16 << 20, 8, 1 << 18
MOST_SERVERS = 4096

_EVENT = Fields(
    time=Number(0.0),
    uid=Text(200),
    incarnation=Integer(0),
    number=Integer(0),
    what=Word((JOINED, LEFT)),
    reason=Text(MOST_NAME),
)
HISTORY = Items(_EVENT, MOST_EVENTS)
RECORD = Fields(
    version=Integer(VERSION, VERSION),
    job=Text(200),
    leader=Integer(0),
    address=Text(300),
    began=Number(0.0),
    written=Number(0.0),
    end=Maybe(Fields(status=Integer(0, 255), reason=Text(4000))),
    servers=Maybe(Items(Maybe(Text(300)), MOST_SERVERS)),
    servers_trouble=Text(1000),
    phase=Text(20),
    reason=Text(4000),
    num_passes=Integer(0),
    saved=Integer(-1),
    todo=Integer(0),
    pending=Integer(0),
    done=Integer(0),
    failed=Integer(0),
    dispatches=Integer(0),
    samples=Integer(0),
    repeated=Integer(0),
    waiting=Integer(0),
    discarded=Items(Text(MOST_NAME), 100),
    holders=Items(Fields(**HOLDER_FIELDS, name=Text(MOST_NAME), number=Integer(0)), MOST_RECORDED),
    members=Items(Fields(**MEMBER_FIELDS), MOST_RECORDED),
    passes=Items(Fields(**PASS_FIELDS), MOST_RECORDED),
    history=HISTORY,
    **{"pass": Integer(0)},
)


def read_record(path: Path) -> dict[str, Any]:
    """Return the record in a file.

    Raises: DamagedError: the content is not a record.  OSError: the file cannot be read.
    """
    try:
        return parse_object(read_text_file(path, MOST_BYTES), RECORD, NAME, depth=MOST_DEPTH, values=MOST_VALUES)
    except SchemaError as exc:
        raise DamagedError(f"{path} is no record of a master: {exc}; a master writes it anew within a second") from exc


def read_settled(path: Path, clock_s: Callable[[], float] = time.time) -> tuple[dict[str, Any], float, bool]:
    """Return the newest record, its age in seconds, and whether the master should have written a newer record by now.

    Raises: see `read_record`.
    """
    return status_files.read_settled(lambda: read_record(path), clock_s, status_files.LATE_S, status_files.WATCH_S)


def describe(record: dict[str, Any], age: float, *, is_late: bool) -> Iterator[str]:
    """Yield lines about the state of a job.

    Args: age: age of the record in seconds.  is_late: whether the master should have written a newer record by now.
    """
    now = record["written"] if is_late or record["end"] is not None else record["written"] + age
    yield from _describe_state(record, age, is_late=is_late)
    total = record["todo"] + record["pending"] + record["done"] + record["failed"]
    if total:
        yield (
            f"tasks of pass {record['pass']}: {record['todo']} todo, {record['pending']} pending, "
            f"{record['done']} done, {record['failed']} failed, of {total}"
        )
    holders = sorted(record["holders"], key=lambda one: one["since"])
    yield from tabulate("pending", [_describe_holder(one, now) for one in holders], NAME, record["pending"])
    yield from _explain_idleness(record)
    yield from tabulate("discarded for this pass", record["discarded"], NAME, record["failed"])
    members = sorted(record["members"], key=lambda one: (one["connected"], -one["joined"]))
    yield from tabulate("trainers", [_describe_member(one) for one in members], NAME)
    yield from _describe_servers(record)
    yield from tabulate("passes", [_describe_pass(one) for one in reversed(record["passes"])], NAME)
    history = [_describe_event(one) for one in reversed(record["history"])]
    yield from tabulate("trainers that joined or left, the last first", history, NAME)


def _describe_state(record: dict[str, Any], seconds: float, *, is_late: bool) -> Iterator[str]:
    """Yield the state of the job, and the age of this information."""
    phase, end, age = record["phase"], record["end"], describe_duration(seconds)
    where = f"pass {record['pass']} of {record['num_passes']}"
    if phase == Phase.DONE:
        yield f"job {record['job']}: done, all {record['num_passes']} passes, and the model is saved"
    elif phase == Phase.FAILED:
        yield f"job {record['job']}: failed in {where}: {record['reason']}"
    elif phase == Phase.SAVING:
        yield f"job {record['job']}: all {record['num_passes']} passes are done, and the model is being saved"
    elif phase == Phase.RUNNING:
        saved = f"; the last model saved is that of pass {record['saved']}" if record["saved"] >= 0 else ""
        yield f"job {record['job']}: {where}; {record['waiting']} trainers wait for a task{saved}"
    else:
        yield f"job {record['job']}: no trainer has given its file list yet"
    if end is not None:
        how = f", status {end['status']}: {end['reason']}" if end["status"] else ""
        yield f"the master ended {age} ago{how}; the lines below show the state at that time"
        if phase not in (Phase.DONE, Phase.FAILED):
            yield "start `paddle master` again with the same store to continue the job"
    elif is_late:
        yield (
            f"the master has not written for {age}: it was killed, is frozen or cannot write here; the lines below "
            "show the last known state"
        )
        if phase not in (Phase.DONE, Phase.FAILED):
            yield "a standby continues the job; without a standby, start `paddle master` with the same store"
    else:
        yield f"the master at {record['address']}, leader {record['leader']}, wrote this state {age} ago"


def _explain_idleness(record: dict[str, Any]) -> Iterator[str]:
    """Yield which trainers have no task, and why the master has no task for them."""
    idle = [f"{one['number']}" for one in record["members"] if one["connected"] and not one["tasks"]]
    if record["phase"] != Phase.RUNNING or not idle or record["todo"]:
        return
    shown = ", ".join(idle[:MOST_ROWS]) + (f" and {len(idle) - MOST_ROWS} more" if len(idle) > MOST_ROWS else "")
    why = f"the pass ends when the {record['pending']} pending tasks are done" if record["pending"] else "the pass ends"
    yield f"without a task: {'trainer' if len(idle) == 1 else 'trainers'} {shown}; no task is todo, and {why}"


def _describe_holder(holder: dict[str, Any], now: float) -> str:
    since = describe_duration(now - holder["since"])
    return f"task {holder['name']}: trainer {holder['number']}, {_name(holder)}, for {since}"


def _describe_member(member: dict[str, Any]) -> str:
    tasks = ", ".join(map(str, member["tasks"])) or "none"
    lost = "" if member["connected"] else "; its connection is lost"
    since = clock(member["joined"])
    return f"{member['number']}: {_name(member)}, since {since}, tasks {tasks}{lost}"


def _describe_servers(record: dict[str, Any]) -> Iterator[str]:
    if record["servers"] is None:
        yield f"the parameter servers are not known: {record['servers_trouble']}"
        return
    servers = list(enumerate(record["servers"]))
    if len(servers) > MOST_ROWS:
        servers.sort(key=lambda one: one[1] is not None)  # missing servers come first
    yield from tabulate("parameter servers", [f"{index}: {one or 'not there'}" for index, one in servers], NAME)


def _describe_pass(account: dict[str, Any]) -> str:
    repeated = account["dispatches"] - account["done"]
    unreported = f", {account['unreported']} of them without a report" if account["unreported"] else ""
    line = (
        f"{account['pass']}: {account['done']} tasks finished, {account['discarded']} discarded, {repeated} dispatches "
        f"repeated{unreported}, {account['failures']} failures, {account['samples']} samples, {account['repeated']} "
        f"repeated samples, ended {clock(account['ended'])}"
    )
    return f"{line}; discarded: {'; '.join(account['names'])}" if account["names"] else line


def _describe_event(event: dict[str, Any]) -> str:
    reason = f": {event['reason']}" if event["reason"] else ""
    return f"{clock(event['time'])} trainer {event['number']}, {_name(event)}, {event['what']}{reason}"


def _name(member: dict[str, Any]) -> str:
    return f"{member['uid']}.{member['incarnation']}"

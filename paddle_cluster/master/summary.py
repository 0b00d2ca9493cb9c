"""Pure functions that summarize the state of a master for users. No I/O."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from paddle_cluster.master.tasks.records import Hold, PassAccount
from paddle_cluster.master.tasks.state import MasterState

MOST_RECORDED = 1000  # maximum number of members, of holders and of passes in a record
MOST_NAME = 1000  # maximum characters of the name of a task


def describe_status(state: MasterState, leader: int, most: int) -> dict[str, Any]:
    """Return the answer to "status".

    Args: most: maximum number of members, of holders and of passes.
    """
    head, table = state.head, state.table
    return {
        "phase": head.phase.value if head else "no data set",
        "reason": head.reason if head else "",
        "leader": leader,
        "pass": table.pass_number,
        "todo": table.todo,
        "pending": len(table.pending),
        "done": table.done,
        "failed": len(table.failed),
        "holders": [
            {"task": number, "epoch": hold.epoch, **hold.member.to_json(), "since": hold.since}
            for number, hold in list_holds(state, most)
        ],
        "members": [
            {
                **one.id.to_json(),
                "number": state.numbers[one.id.uid].number,
                "joined": one.joined,
                "connected": one.until is None,
                "tasks": table.held_by(one.id)[:64],
            }
            for one in itertools.islice(state.members.values(), most)
        ],
        "passes": [_describe_pass(one) for one in list(state.accounts.values())[-most:]],
    }


def describe_record(state: MasterState, leader: int) -> dict[str, Any]:
    """Return the content of tasks.json; see `tasks_file`."""
    record = describe_status(state, leader, MOST_RECORDED)
    for (number, hold), holder in zip(list_holds(state, MOST_RECORDED), record["holders"], strict=True):
        holder["name"] = state.table.name(number)[:MOST_NAME]
        holder["number"] = state.numbers[hold.member.uid].number
    table, head = state.table, state.head
    return record | {
        "num_passes": state.settings.num_passes,
        "saved": head.saved if head else -1,
        "discarded": [table.name(number)[:MOST_NAME] for number in itertools.islice(table.failed, 100)],
        "dispatches": table.sums.dispatches,
        "samples": table.sums.samples,
        "repeated": table.sums.repeated,
        "waiting": len(state.waiting),
        "history": [
            {
                "time": one.time,
                **one.member.to_json(),
                "number": one.number,
                "what": one.what,
                "reason": one.reason[:MOST_NAME],
            }
            for one in state.history
        ],
    }


def list_holds(state: MasterState, most: int) -> list[tuple[int, Hold]]:
    """Return at most `most` pairs of a pending task and one of its present dispatches."""
    numbers = itertools.islice(state.table.pending, most)
    return [(number, hold) for number in numbers for hold in state.table.current(number).holds][:most]


def _describe_pass(account: PassAccount) -> dict[str, Any]:
    """Return the account of a pass as plain data, without the list of repeated dispatches."""
    described = dataclasses.asdict(account)
    described["pass"] = described.pop("pass_number")
    described["names"] = [name[:1000] for name in account.names]
    del described["reported"]
    return described | {"unreported": account.unreported}

"""The state in a few numbers and names, for people (pure)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from master.tasks.state import MasterState


def describe_status(state: MasterState, leader: int, most: int) -> dict[str, Any]:
    """Return the answer to "status".

    Args: most: members, holders and passes that are shown, each.
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
            {
                "task": number,
                "epoch": hold.epoch,
                "uid": hold.member.uid,
                "incarnation": hold.member.incarnation,
                "since": hold.since,
            }
            for number in itertools.islice(table.pending, most)
            for hold in table.current(number).holds
        ][:most],
        "members": [
            {
                "uid": one.id.uid,
                "incarnation": one.id.incarnation,
                "number": state.numbers[one.id.uid].number,
                "joined": one.joined,
                "connected": one.until is None,
                "tasks": table.held_by(one.id)[:64],
            }
            for one in itertools.islice(state.members.values(), most)
        ],
        "passes": [_describe_pass(dataclasses.asdict(one)) for one in list(state.accounts.values())[-most:]],
    }


def _describe_pass(account: dict[str, Any]) -> dict[str, Any]:
    account["pass"] = account.pop("pass_number")
    account["names"] = [name[:1000] for name in account["names"]]
    return account

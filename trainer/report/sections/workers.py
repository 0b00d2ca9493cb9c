"""The section about the workers of an all-reduce job.

It shows the generations of the job, the workers that joined, left or failed, and the lost time.
"""

from __future__ import annotations

from typing import Any

from paddle_base.runtime.status_files import LATE_S, list_names
from paddle_cluster.elastic.membership_file import (
    NEW,
    describe_cause,
    describe_driver,
    describe_loss,
    describe_member,
    describe_state,
    list_newcomers,
)
from trainer.report.facts import Facts
from trainer.report.html.markup import Markup, join, tag
from trainer.report.html.tables import make_table
from trainer.report.html.text import NONE, general, moment

MOST = 200  # maximum number of generations that are shown, and of workers that are shown
HEADS = ["generation", "began", "came", "went", "ended by", "workers", "time lost before this generation"]


def show_workers(facts: Facts) -> Markup | None:
    """Return the section of the driver's record; None if the job has no driver."""
    record = facts.membership
    if not record:
        return None
    age = max(0.0, facts.now - record["written"])
    is_late = record["end"] is None and age > LATE_S
    lines = [describe_state(record, 0.0 if is_late else age), describe_driver(record, age, is_late=is_late)]
    parts = [tag("p", line[:1].upper(), line[1:], ".") for line in (reversed(lines) if is_late else lines)]
    generations = record["generations"]
    changes = record["forgotten"] + len(generations) - 1
    if generations:
        rows = [_describe_row(one) for one in reversed(generations[-MOST:])]
        total = ["all", "", "", "", "", "", describe_loss(record["lost"])] if changes > 0 else []
        parts.append(make_table("Generations, the last first", HEADS, rows, words=5, total=total))
        is_over = record["end"] is not None
        members = [tag("li", describe_member(one, is_over=is_over)) for one in record["members"][:MOST]]
        rest = len(record["members"]) - len(members)
        parts.append(tag("ul", *members, tag("li", f"and {rest} more") if rest else ""))
        if new := list_newcomers(record):
            parts.append(tag("p", f"{NEW}:"))
            parts.append(tag("ul", *(tag("li", line) for line in new[:MOST])))
    return join(parts)


def _describe_row(one: dict[str, Any]) -> list[object]:
    return [
        general(one["number"]),
        moment(one["began"]),
        _list(one["came"]),
        _list(one["went"]),
        describe_cause(one) or NONE,
        general(one["size"]),
        describe_loss(one["lost"]) if one["lost"] else NONE,
    ]


def _list(names: list[str]) -> str:
    return list_names(names) or NONE

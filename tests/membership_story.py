"""The record that the driver writes of a job whose workers come and go; a test says what happens and when."""

from __future__ import annotations

import json
from typing import Any

from paddle_cluster.elastic.hosts import SlotInfo, complete_slots
from paddle_cluster.elastic.membership.history import JobHistory
from paddle_cluster.elastic.membership.members import MemberTable
from paddle_cluster.elastic.membership_file import NAME, RECORD, describe

BEGAN = 1_500_000_000.0


def make_record(history: JobHistory, now: float, end: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the record that a driver writes at this moment, after the same checks as a reader makes."""
    facts = {"version": 1, "driver": "vm, process 7", "began": BEGAN, "least": 1, "most": None, "goes_on": False}
    record = {**facts, **history.describe(), "end": end, "written": now}
    found: dict[str, Any] = json.loads(json.dumps(record))
    RECORD.check(found, NAME)
    return found


class StoryJob:
    """A history with a clock, and processes of hosts of one slot each."""

    def __init__(self) -> None:
        self.now, self.table, self.generation = BEGAN, MemberTable(), 0
        self.history = JobHistory(lambda: self.now)

    def begin(self, *hosts: str, new: tuple[str, ...] = ()) -> None:
        """Begin a generation; the hosts `new` get a new process although they had one before."""
        self.generation += 1
        for host in hosts:
            if host in new or self.table.find((host, 0)) is None:
                self.table.begin((host, 0), "", self.generation, [])
        self.table.keep({(host, 0) for host in hosts})
        slots = [SlotInfo(host, rank, 0, 0) for rank, host in enumerate(hosts)]
        complete_slots(slots)
        self.history.begin(self.generation, slots, self.table)

    def join(self, *ranks: int) -> None:
        for rank in ranks:
            self.history.join(self.generation, rank)

    def record(self, end: dict[str, Any] | None = None) -> dict[str, Any]:
        return make_record(self.history, self.now, end)

    def lines(self, end: dict[str, Any] | None = None, age: float = 0.0, is_late: bool = False) -> list[str]:
        return list(describe(self.record(end), age, is_late=is_late))

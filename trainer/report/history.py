"""What records.jsonl tells of a job, kept from one report to the next: only what is new in the file is read."""

from __future__ import annotations

import contextlib
import json
import math
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.report.text import number, whole

Json = dict[str, Any]
Place = tuple[int, float]  # a pass, and after how many of its batches; the end of a pass comes after all of them


class Batches:
    """The lines of batches as columns of equal length, so that 100,000 of them take a few megabytes."""

    def __init__(self) -> None:
        self.passes, self.batches, self.times = array("q"), array("q"), array("d")
        self.costs, self.speeds, self.attempts = array("d"), array("d"), array("q")
        self.evaluators: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self.passes)

    def add(self, record: Json, attempt: int) -> None:
        """Append the record of a window of batches; `attempt` counts the starts before it."""
        rows = len(self)
        self.passes.append(whole(record.get("pass")))
        self.batches.append(whole(record.get("batch")))
        self.attempts.append(attempt)
        for column, key in ((self.times, "time"), (self.costs, "window_cost"), (self.speeds, "samples_per_second")):
            column.append(_or_nan(record.get(key)))
        for name, value in _numbers(record, "window_evaluators"):
            if name not in self.evaluators:
                self.evaluators[name] = array("d", [math.nan]) * rows
            self.evaluators[name].append(value)
        for column in self.evaluators.values():
            if len(column) == rows:
                column.append(math.nan)

    def cut(self, place: Place) -> None:
        """Drop what comes after a place."""
        keep = len(self)
        while keep and (self.passes[keep - 1], self.batches[keep - 1]) > place:
            keep -= 1
        for column in (self.passes, self.batches, self.attempts):
            del column[keep:]
        for values in (self.times, self.costs, self.speeds, *self.evaluators.values()):
            del values[keep:]


class History:
    """The records that count: those of an attempt end where the next one went on."""

    def __init__(self) -> None:
        self.starts: list[Json] = []
        self.passes: list[Json] = []
        self.tests: list[Json] = []
        self.saves: list[Json] = []
        self.ends: list[Json] = []
        self.pass_tests: dict[int, Json] = {}  # the first one after the line of the pass
        self.batches = Batches()

    def add(self, record: Json) -> None:
        """Take in the next record."""
        kind = record.get("kind")
        if kind == "start":
            self._cut((whole(record.get("pass")), float(whole(record.get("batch")))))
            self.starts.append(record)
        elif kind == "batch":
            self.batches.add(record, len(self.starts))
        elif kind == "pass":
            self.passes.append(record)
        elif kind == "test":
            self.tests.append(record)
            place = whole(record.get("pass"))
            if self.passes and whole(self.passes[-1].get("pass")) == place:
                self.pass_tests.setdefault(place, record)
        elif kind == "save":
            self.saves.append(record)
        elif kind == "end":
            self.ends.append(record)

    def _cut(self, place: Place) -> None:
        """Drop what an attempt that goes on from a place does again."""
        self.batches.cut(place)
        self.passes = [one for one in self.passes if whole(one.get("pass")) < place[0]]
        self.tests = [one for one in self.tests if (whole(one.get("pass")), whole(one.get("batch"))) <= place]
        self.saves = [one for one in self.saves if whole(one.get("pass")) <= place[0]]
        kept = {whole(one.get("pass")) for one in self.passes}
        self.pass_tests = {number: test for number, test in self.pass_tests.items() if number in kept}

    @property
    def start(self) -> Json:
        """The newest start; empty before the first."""
        return self.starts[-1] if self.starts else {}

    def evaluators(self) -> list[str]:
        """Return the names of all evaluators that have values, in the order of their first."""
        names: dict[str, None] = {}
        for record in (*self.passes[:1], *self.passes[-1:], *self.tests[:1], *self.tests[-1:]):
            names.update(dict.fromkeys(name for name, _ in _numbers(record, "evaluators")))
        names.update(dict.fromkeys(self.batches.evaluators))
        return list(names)

    def pass_lengths(self) -> dict[int, int]:
        """Return the number of batches of each pass, for those under way of the longest before it."""
        lengths = {whole(one.get("pass")): whole(one.get("batch")) for one in self.passes}
        longest = max(lengths.values(), default=0)
        for place, batch in zip(self.batches.passes, self.batches.batches, strict=True):
            lengths[place] = max(lengths.get(place, longest), batch)
        return lengths


class RecordFile:
    """Reads records.jsonl as it grows; a file that was replaced or cut is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._offset = 0
        self.history = History()

    def read(self) -> History:
        """Take in what is new, but for a half last line, and return all that is known."""
        try:
            with self._path.open("rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._offset:
                    self._inode, self._offset, self.history = facts.st_ino, 0, History()
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offset += len(line)
                    for record in _parse(line):
                        self.history.add(record)
        except OSError:
            pass
        return self.history


def _parse(line: bytes) -> Iterator[Json]:
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        if isinstance(record, dict):
            yield record


def _or_nan(value: Any) -> float:
    found = number(value)
    return math.nan if found is None else found


def _numbers(record: Json, key: str) -> Iterator[tuple[str, float]]:
    values = record.get(key)
    if isinstance(values, dict):
        yield from ((str(name), _or_nan(value)) for name, value in values.items())

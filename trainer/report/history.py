"""Keep the content of records.jsonl between reports, so that each report reads only the new records."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from paddle_base.runtime.durable_files import MOST_TEXT_BYTES, tells_nothing
from paddle_base.runtime.regular_files import open_regular
from trainer.records.records import PLACED, Record, parse_lines, place_of
from trainer.report.html.text import clamp, number, whole

Place = tuple[int, float]  # (pass, completed batches of the pass, or inf at the end of the pass)


class Batches:
    """The records of batches as columns of equal length, in which 100,000 records take only a few megabytes."""

    def __init__(self) -> None:
        self.passes, self.batches, self.times = array("q"), array("q"), array("d")
        self.costs, self.samples, self.starts = array("d"), array("d"), array("q")
        self.evaluators: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self.passes)

    def add(self, record: Record, start: int) -> None:
        """Append a record of kind `batch`. `start` is the number of start records before this record."""
        place = clamp(record["pass"]), clamp(record["batch"])
        if self.passes and (self.passes[-1], self.batches[-1]) == place:  # a repeated record
            self._keep(len(self) - 1)
        rows = len(self)
        self.passes.append(place[0])
        self.batches.append(place[1])
        self.starts.append(start)
        self.times.append(_or_nan(record["time"]))
        self.costs.append(_or_nan(record.get("window_cost")))
        self.samples.append(_or_nan(record.get("samples")))
        values = record.get("window_evaluators")
        measured = values if isinstance(values, dict) else {}
        if measured.keys() != self.evaluators.keys():
            for name in measured.keys() - self.evaluators.keys():
                self.evaluators[name] = array("d", [math.nan]) * rows
        for name, column in self.evaluators.items():
            column.append(_or_nan(measured.get(name)))

    def cut(self, place: Place) -> None:
        """Remove all batches after a place."""
        keep = len(self)
        while keep and (self.passes[keep - 1], self.batches[keep - 1]) > place:
            keep -= 1
        self._keep(keep)

    def _keep(self, keep: int) -> None:
        for column in (self.passes, self.batches, self.starts):
            del column[keep:]
        for values in (self.times, self.costs, self.samples, *self.evaluators.values()):
            del values[keep:]


class History:
    """The valid records. When an attempt continues at a place, the previous records of later places are removed."""

    def __init__(self) -> None:
        self.starts: list[Record] = []
        self.end: Record = {}  # the end record of the newest attempt; empty if the attempt has not ended
        self.batches = Batches()
        self._placed: dict[str, dict[Place, Record]] = {kind: {} for kind in PLACED}

    def add(self, record: Record) -> None:
        """Add the next record, by the rule of `drop_undone`."""
        kind = record["kind"]
        if kind == "start":
            self._cut((record["pass"], record["batch"]))
            self.starts.append(record)
            self.end = {}
        elif kind == "batch":
            self.batches.add(record, len(self.starts))
        elif kind in self._placed:
            key = record["pass"], record["batch"]
            self._placed[kind].pop(key, None)  # a repeated record moves to its new place
            self._placed[kind][key] = record
        elif kind == "end":
            self.end = record

    def _cut(self, place: Place) -> None:
        self.batches.cut(place)
        for kind, records in self._placed.items():
            self._placed[kind] = {key: one for key, one in records.items() if place_of(one) <= place}

    @property
    def passes(self) -> list[Record]:
        """The records of finished passes."""
        return list(self._placed["pass"].values())

    @property
    def tests(self) -> list[Record]:
        """The records of tests, at the end of a pass or within it."""
        return list(self._placed["test"].values())

    @property
    def saves(self) -> list[Record]:
        """The records of saved parameters."""
        return list(self._placed["save"].values())

    def test_of(self, one: Record) -> Record:
        """Return the record of the test at the end of the pass in record `one`, or an empty record."""
        return self._placed["test"].get((one["pass"], one["batch"]), {})

    @property
    def start(self) -> Record:
        """The newest start record; an empty record before the first start."""
        return self.starts[-1] if self.starts else {}

    def evaluators(self) -> list[str]:
        """Return the names of all evaluators with values, in the order in which they first occur."""
        names: dict[str, None] = {}
        for record in (*self.passes[:1], *self.passes[-1:], *self.tests[:1], *self.tests[-1:]):
            names.update(dict.fromkeys(name for name, _ in _numbers(record, "evaluators")))
        names.update(dict.fromkeys(self.batches.evaluators))
        return list(names)

    def pass_lengths(self) -> dict[int, int]:
        """Return the number of batches of each pass.

        The number of an unfinished pass is an estimate: at least the largest number of batches of a finished pass.
        """
        lengths = {whole(one.get("pass")): whole(one.get("batch")) for one in self.passes}
        longest = max(lengths.values(), default=0)
        for place in set(self.batches.passes):
            lengths.setdefault(place, longest)
        for place, batch in zip(self.batches.passes, self.batches.batches, strict=True):
            if batch > lengths[place]:
                lengths[place] = batch
        return lengths


class RecordFile:
    """A reader of records.jsonl while the file grows.

    If the file was replaced or shortened, it is read as a whole again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = self._offset = 0
        self._is_skipping = False  # whether the offset is within a line that is too long for a record
        self.history = History()

    def read(self) -> History:
        """Read the new records, except an incomplete last line, and return all records.

        Raises: OSError: the file exists but cannot be read.
        """
        try:
            with open_regular(self._path) as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._offset:
                    self._inode, self._offset, self.history = facts.st_ino, 0, History()
                    self._is_skipping = False
                file.seek(self._offset)
                for record in parse_lines(self._whole_lines(file)):
                    self.history.add(record)
        except OSError as error:
            if not tells_nothing(error):
                raise
        return self.history

    def _whole_lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the new whole lines. A line that is longer than MOST_TEXT_BYTES is skipped to its end."""
        while line := file.readline(MOST_TEXT_BYTES):
            is_ended, was_skipping = line.endswith(b"\n"), self._is_skipping
            if not is_ended and len(line) < MOST_TEXT_BYTES:
                return
            self._offset += len(line)
            self._is_skipping = not is_ended
            if is_ended and not was_skipping:
                yield line


def _or_nan(value: Any) -> float:
    if type(value) is float:  # no further check is needed, because charts omit values that are not finite
        return value
    found = number(value)
    return math.nan if found is None else found


def _numbers(record: Record, key: str) -> Iterator[tuple[str, float]]:
    values = record.get(key)
    if isinstance(values, dict):
        yield from ((str(name), _or_nan(value)) for name, value in values.items())

"""Read and write the records of a run. Each line of the file OUTPUT/records.jsonl is a record, a JSON object.

All charts of a job come from this file.

Every record has `kind`, `time` (seconds since the epoch) and `attempt` (the attempt's name, "" without a launcher):

  start       pass, batch, start_pass, passes, trainers, resumed_from, config, flags, layers, parameters, evaluators,
              method
  batch       pass, batch, samples, cost, evaluators, window_cost, window_evaluators, for each batch line of the log
  pass        pass, batch, samples, cost, evaluators, seconds, usage, which has the totals of each trainer
              (trainer/telemetry/time_breakdown.py)
  test        pass, batch, samples, cost, evaluators
  save        pass, batch, path
  checkpoint  pass, batch, name
  end         status (an exit status), message

In a recurrent group, an agent is a layer that passes on the output of another layer. A start record lists that layer in
the agent's `inputs`, or in the agent's `memory_of` if the agent passes on the output of the previous step.

Costs and the results of evaluators have six digits, as in the log. A number that is not finite is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from paddle_base.runtime.durable_files import MOST_TEXT_BYTES
from paddle_base.runtime.regular_files import open_regular

Record = dict[str, Any]
FILE = "records.jsonl"
LARGEST = 2**53  # a time or count that is at least as large is invalid
PLACED = ("batch", "pass", "test", "save", "checkpoint")  # kinds of records with a training position


def encode_record(record: Mapping[str, Any]) -> str:
    """Return the line of a record, with its newline. A number that is not finite becomes null."""
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
    except ValueError:  # such numbers are rare, so the record is searched for them only after an error
        return json.dumps(_without_odd_numbers(record), separators=(",", ":"), allow_nan=False) + "\n"


def _without_odd_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_odd_numbers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_odd_numbers(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_all_records(output: Path) -> list[Record]:
    """Return the records of all attempts of a job; [] if the file cannot be read.

    A line that is not a record is ignored, because a killed writer may have left a truncated line.
    """
    try:
        with open_regular(output / FILE) as file:
            return list(parse_lines(iter(lambda: file.readline(MOST_TEXT_BYTES), b"")))
    except OSError:
        return []


def parse_lines(lines: Iterable[bytes]) -> Iterable[Record]:
    """Yield the valid records in these lines."""
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str) and is_placed_right(record):
            yield record


def is_placed_right(record: Record) -> bool:
    """Return whether a record has a valid time and, if its kind has a training position, a valid pass and batch."""
    needed = ("pass", "batch") if record["kind"] in (*PLACED, "start") else ()
    time, numbers = record.get("time"), [record.get(name) for name in needed]
    if not isinstance(time, (int, float)) or not abs(time) < LARGEST:  # the comparison is also false for nan
        return False
    return all(isinstance(one, int) and abs(one) < LARGEST for one in numbers)


def read_records(output: Path) -> list[Record]:
    """Return the valid records, without the records that a resumed attempt has replaced."""
    return drop_undone(read_all_records(output))


def drop_undone(records: Iterable[Record]) -> list[Record]:
    """Return the records without those of batches, passes, tests and saves that a later attempt has repeated."""
    kept: dict[Any, Record] = {}
    for number, record in enumerate(records):
        kind = record["kind"]
        if kind == "start":
            place = record["pass"], record["batch"]
            kept = {key: one for key, one in kept.items() if one["kind"] not in PLACED or place_of(one) <= place}
        key = (kind, record["pass"], record["batch"]) if kind in PLACED else number
        kept.pop(key, None)  # a repeated record moves to its new position
        kept[key] = record
    return list(kept.values())


def place_of(record: Record) -> tuple[int, float]:
    """Return a record's pass and the number of the pass's batches before the record; inf if it ends the pass."""
    return record["pass"], math.inf if record["kind"] == "pass" else record["batch"]


class BatchSums(Protocol):
    """The numbers of some batches: an Accumulator, whose import needs numpy, or what another program has printed."""

    @property
    def samples(self) -> int:
        """The number of samples."""
        ...

    def average_cost(self) -> float:
        """Return the cost per sample."""
        ...

    def results(self) -> dict[str, str]:
        """Return the number of each measure as printed, by name."""
        ...


def numbers_of(sums: BatchSums, prefix: str = "") -> Record:
    """Return the cost and the evaluators in the form of a record. The numbers are rounded as in the log."""
    evaluators = {name: _shown(text) for name, text in sums.results().items()}
    return {f"{prefix}cost": _shown(f"{sums.average_cost():g}"), f"{prefix}evaluators": evaluators}


def _shown(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None

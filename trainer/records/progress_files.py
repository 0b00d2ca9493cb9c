"""Read and write the files progress.json of a job and of each trainer. Users and `paddle status` read these files."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import read_text_file, replace_file
from trainer.records.records import LARGEST, Record

FILE = "progress.json"
STALE_S = 60.0  # seconds; the speed of a trainer that has reported nothing for this time is ignored


def write_progress(directory: Path, progress: Mapping[str, Any]) -> None:
    """Replace the progress.json of a directory. A reader sees either the old file or the new file.

    Raises: OSError.
    """
    replace_file(directory / FILE, json.dumps(progress, indent=1) + "\n")


def read_job(output: Path) -> Record:
    """Return the progress of the job, or {} if there is no progress.json yet."""
    try:
        found = json.loads(read_text_file(output / FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_trainers(output: Path, attempt: str) -> dict[str, Record]:
    """Return {trainer id: progress} for the trainers that have reported in this attempt, in the order of the ids."""
    found = {}
    for path in output.glob(f"node_*/{FILE}"):
        one = read_job(path.parent)
        number = path.parent.name.removeprefix("node_")
        if one.get("attempt") == attempt and _is_whole(one) and re.fullmatch("[0-9]{1,9}", number):
            found[number] = one
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def _is_whole(progress: Record) -> bool:
    usage = progress.get("usage")
    if not isinstance(usage, dict):
        return False
    numbers = [*(progress.get(name) for name in ("time", "samples_per_second", "pass", "batch")), *usage.values()]
    # the comparison is also false if a number is nan
    return all(isinstance(one, (int, float)) and abs(one) < LARGEST for one in numbers)


class TrainerWatch:
    """The progress of the other trainers, which is read again and again.

    A trainer is silent if its record has not changed for STALE_S seconds of this machine's clock. The times in the
    records are only compared with earlier times of the same trainer, because the clocks of two machines may differ.

    Thread safety: one thread calls `read`; any thread may read the attributes.
    Attributes: trainers: the records by trainer id.  silent: the ids of the silent trainers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.trainers: dict[str, Record] = {}
        self.silent: frozenset[str] = frozenset()
        self._clock = clock
        self._seen: dict[str, tuple[float, float]] = {}  # {trainer id: time in the record, when it was first seen}

    def read(self, output: Path, attempt: str) -> None:
        """Read the records of an attempt."""
        now, found = self._clock(), read_trainers(output, attempt)
        seen = {number: (float(one["time"]), now) for number, one in found.items()}
        self._seen = {number: self._choose(number, *one) for number, one in seen.items()}
        silent = (number for number, (_, since) in self._seen.items() if now - since > STALE_S)
        self.trainers, self.silent = found, frozenset(silent)

    def _choose(self, number: str, said: float, now: float) -> tuple[float, float]:
        before = self._seen.get(number)
        return before if before is not None and before[0] == said else (said, now)


def job_speed(trainers: Mapping[str, Record], silent: Container[str] = ()) -> float:
    """Return the samples per second of all trainers together, without the silent ones."""
    return float(sum(one["samples_per_second"] for number, one in trainers.items() if number not in silent))


def mean_speed(trainers: Mapping[str, Record]) -> float:
    """Return the samples per second of all trainers together, averaged over a whole run that has ended."""
    totals = [(one["usage"].get("samples", 0), one["usage"].get("seconds", 0)) for one in trainers.values()]
    return float(sum(samples / seconds for samples, seconds in totals if seconds > 0))


def sum_last_pass(trainers: Mapping[str, Record], count: int) -> Record | None:
    """Return {pass, samples, cost, trainers} for the newest pass that trainer 0 has finished, or None.

    If all `count` trainers have reported this pass, `samples` and `cost` (per sample) cover all trainers. Otherwise
    `samples` and `cost` cover only trainer 0. `trainers` is the number of trainers that `samples` and `cost` cover.
    """
    own = _read_pass(trainers.get("0"))
    if own is None:
        return None
    told = [one for one in map(_read_pass, trainers.values()) if one is not None and one[0] == own[0]]
    if len(told) != count:
        told = [own]
    samples = sum(one[1] for one in told)
    weighed = sum(one[1] * one[2] for one in told) / samples if len(told) > 1 and samples else own[2]
    cost = float(f"{weighed:g}") if math.isfinite(weighed) else None
    return {"pass": own[0], "samples": samples, "cost": cost, "trainers": len(told)}


def _read_pass(trainer: Record | None) -> tuple[int, int, float] | None:
    """Return the number, samples and cost of the newest pass that a trainer has finished, or None.

    A cost that is not finite is returned as nan.
    """
    found = trainer.get("last_pass") if trainer else None
    if not isinstance(found, dict):
        return None
    number, samples, cost = found.get("pass"), found.get("samples"), found.get("cost")
    if not (isinstance(number, int) and isinstance(samples, int) and abs(number) < LARGEST and 0 <= samples < LARGEST):
        return None
    return number, samples, float(cost) if isinstance(cost, (int, float)) and abs(cost) < LARGEST else math.nan


def find_slowest(trainers: Mapping[str, Record]) -> Record | None:
    """Return {trainer, host, busy_seconds, mean_busy_seconds} for the slowest trainer; None for a single trainer.

    The slowest trainer has spent the most time on data and computation since the attempt began, and all other trainers
    wait for it.
    """
    busy = {
        number: one["usage"].get("data_seconds", 0.0) + one["usage"].get("compute_seconds", 0.0)
        for number, one in trainers.items()
        if one["usage"].get("samples", 0)
    }
    if len(busy) < 2:
        return None
    number = max(busy, key=busy.__getitem__)
    mean = sum(busy.values()) / len(busy)
    host = trainers[number].get("host", "")
    seconds = round(busy[number], 3)
    return {"trainer": int(number), "host": host, "busy_seconds": seconds, "mean_busy_seconds": round(mean, 3)}

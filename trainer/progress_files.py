"""progress.json of a job and of each of its trainers: how far they are, for people and for `paddle status`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.files import replace_file
from trainer.records import LARGEST, Record

FILE = "progress.json"
STALE_S = 60.0  # a trainer that has not said anything for so long does not count as fast any more


def write_progress(directory: Path, progress: Mapping[str, Any]) -> None:
    """Replace a progress.json; readers see the old or the new one.

    Raises: OSError.
    """
    replace_file(directory / FILE, json.dumps(progress, indent=1) + "\n")


def read_job(output: Path) -> Record:
    """Return the job's progress, {} where there is none yet."""
    try:
        found = json.loads((output / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_trainers(output: Path, attempt: str) -> dict[str, Record]:
    """Return {trainer id: its progress} of those that have said something in this attempt, in the order of the ids."""
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
    return all(isinstance(one, (int, float)) and abs(one) < LARGEST for one in numbers)  # which no nan is


def job_speed(trainers: Mapping[str, Record]) -> float:
    """Return the samples per second of all trainers together."""
    fresh = time.time() - STALE_S
    return float(sum(one["samples_per_second"] for one in trainers.values() if one["time"] >= fresh))


def find_slowest(trainers: Mapping[str, Record]) -> Record | None:
    """Return {trainer, host, busy_seconds, mean_busy_seconds}: who kept the others waiting; None for a single trainer.

    That is who was busy longest, with its data and its computing, since the attempt began: the others wait for it.
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

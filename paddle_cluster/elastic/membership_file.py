"""The fields of the file membership.json, which a driver writes once a second, and a description of them as text."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paddle_base.runtime import glog, status_files
from paddle_base.runtime.directory_lock import DirectoryLock
from paddle_base.runtime.durable_files import read_text_file
from paddle_base.runtime.errors import DamagedError, DirectoryInUseError
from paddle_base.runtime.health.steady_time import steady_time
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from paddle_base.runtime.schema import (
    Fields,
    Integer,
    Items,
    Maybe,
    Number,
    Record,
    SchemaError,
    Text,
    Truth,
    Word,
    parse_object,
)
from paddle_base.runtime.status_files import (
    INTERVAL_S,
    MOST_ROWS,
    clock,
    describe_duration,
    list_names,
    tabulate,
    write_record,
)
from paddle_cluster.elastic.launching.output import unwritable
from paddle_cluster.elastic.membership.history import (
    DONE,
    FAILED,
    MOST_GENERATIONS,
    MOST_NAMED,
    WAITS,
    WORKS,
    JobHistory,
)
from paddle_cluster.elastic.membership.results import describe_exit
from paddle_cluster.elastic.settings import ElasticSettings

NAME = "membership.json"
VERSION = 1
MOST_BYTES, MOST_DEPTH, MOST_VALUES = 16 << 20, 6, 1 << 18
MOST_MEMBERS, MOST_TEXT, MOST_REASON = 4096, 300, 4000
WHERE = "report.html, which `paddle report` writes"
NEW = "new workers, for which the others do not wait"

_NAMES = Items(Text(MOST_TEXT), MOST_NAMED)
_MEMBER = Fields(
    rank=Integer(0),
    name=Text(MOST_TEXT),
    process=Text(MOST_TEXT),
    since=Integer(0),
    state=Word((WORKS, WAITS, FAILED, DONE)),
    exit_code=Maybe(Integer(-255, 255)),
)
_GENERATION = Fields(
    number=Integer(0),
    size=Integer(0),
    began=Number(0.0),
    formed=Maybe(Number(0.0)),
    changing=Maybe(Number(0.0)),
    came=_NAMES,
    went=_NAMES,
    failures=Integer(0),
    first_name=Text(MOST_TEXT),
    first_rank=Integer(0),
    first_code=Integer(-255, 255),
    first_silent=Truth(),
    hosts=Truth(),
    lost=Number(0.0),
)
_NEWCOMER = Record(name=Text(MOST_TEXT), process=Text(MOST_TEXT), began=Number(0.0), is_ready=Truth())
RECORD = Record(
    "newcomers",  # older drivers have not written them
    version=Integer(VERSION, VERSION),
    driver=Text(MOST_TEXT),
    began=Number(0.0),
    written=Number(0.0),
    end=Maybe(Fields(status=Integer(0, 255), reason=Text(MOST_REASON))),
    least=Integer(1),
    most=Maybe(Integer(1)),
    goes_on=Truth(),
    wanted=Maybe(Fields(slots=Integer(0), since=Number(0.0))),
    members=Items(_MEMBER, MOST_MEMBERS),
    joined=Integer(0),
    newcomers=Items(_NEWCOMER, MOST_MEMBERS),
    generations=Items(_GENERATION, MOST_GENERATIONS),
    forgotten=Integer(0),
    lost=Number(0.0),
)


def read_record(path: Path) -> dict[str, Any]:
    """Read the record from a file.

    Raises: DamagedError: the file has no valid record.  OSError: the file cannot be read.
    """
    try:
        return parse_object(read_text_file(path, MOST_BYTES), RECORD, NAME, depth=MOST_DEPTH, values=MOST_VALUES)
    except SchemaError as exc:
        raise DamagedError(f"{path} is no record of a driver: {exc}; a running driver renews the file") from exc


def read_settled(path: Path, clock_s: Callable[[], float] = time.time) -> tuple[dict[str, Any], float, bool]:
    """Return the newest record, its age in seconds, and whether the next record of the driver is overdue.

    Raises: DamagedError, OSError: see `read_record`.
    """
    return status_files.read_settled(lambda: read_record(path), clock_s, status_files.LATE_S, status_files.WATCH_S)


def describe(record: dict[str, Any], age: float, *, is_late: bool) -> Iterator[str]:
    """Yield lines that describe the state of a job.

    Args: age: age of the record in seconds.  is_late: whether the next record of the driver is overdue.
    """
    lines = [describe_state(record, 0.0 if is_late else age), describe_driver(record, age, is_late=is_late)]
    yield from reversed(lines) if is_late else lines
    newest = record["generations"][-1:]
    changes = record["forgotten"] + len(record["generations"]) - 1
    if changes > 0:
        times = "change" if changes == 1 else "changes"
        yield f"{changes} {times} of workers took {describe_loss(record['lost'])} in total"
    if newest:
        is_over = record["end"] is not None
        rows = [describe_member(one, is_over=is_over) for one in choose_members(record["members"])]
        yield from tabulate(f"workers of generation {newest[0]['number']}", rows, WHERE, len(record["members"]))
    yield from tabulate(NEW, list_newcomers(record), WHERE)
    rows = [describe_generation(one, is_newest=one is newest[-1]) for one in reversed(record["generations"])]
    yield from tabulate("generations, the last first", rows, WHERE, record["forgotten"] + len(rows))


def choose_members(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the workers to show, by rank. Workers that do not work are chosen first, and then the newest workers."""
    by_interest = sorted(members, key=lambda one: (one["state"] in (WORKS, DONE), -one["since"], one["rank"]))
    return sorted(by_interest[:MOST_ROWS], key=lambda one: one["rank"])


def describe_state(record: dict[str, Any], age: float) -> str:
    """Return the state of the job as text. Args: age: seconds since the record was written."""
    end, wanted, now = record["end"], record["wanted"], record["written"] + age
    newest = record["generations"][-1] if record["generations"] else None
    at = f"generation {newest['number']} of {_count(newest['size'])}" if newest else "no generation yet"
    if end is not None:
        how = "finished" if not end["status"] else f"ended with status {end['status']}: {end['reason']}"
        return f"{how}; {at}"
    failed = f"; {describe_failure(newest)}" if newest and newest["first_code"] else ""
    if wanted is not None:
        since = describe_duration(now - wanted["since"])
        return f"waits for {wanted['slots']} slots of workers since {since}; {at}{failed}"
    if newest is None:
        return "the driver begins"
    changing = newest["changing"]
    if changing is not None:
        states = [one["state"] for one in record["members"]]
        counts = [f"{states.count(one)} {word}" for one, word in _WORDS.items() if states.count(one)]
        return f"changes since {describe_duration(now - changing)}: {at}, of which {', '.join(counts)}{failed}"
    if newest["formed"] is None and record["joined"]:
        since = describe_duration(now - newest["began"])
        return f"forms since {since}: {at}, of which {record['joined']} have connected"
    done = sum(one["state"] == DONE for one in record["members"])
    ending = f"; {done} of them have done their work" if done else ""
    return f"works since {describe_duration(now - newest['began'])}: {at}{ending}"


_WORDS = {
    WORKS: "still work",
    WAITS: "wait for the next generation",
    FAILED: "have failed",
    DONE: "have done their work",
}


def describe_driver(record: dict[str, Any], age: float, *, is_late: bool) -> str:
    """Return the state of the driver and the age of the record as text."""
    ago = describe_duration(age)
    if record["end"] is not None:
        return f"the driver ended {ago} ago"
    if not is_late:
        return f"the driver ({record['driver']}) wrote this state {ago} ago"
    follows = (
        "Its workers continue for --driver-grace seconds. Run the same command again to continue with these workers"
        if record["goes_on"]
        else "Its workers end with the driver"
    )
    return (
        f"the driver {record['driver']} has not written for {ago}: it was killed, is frozen or cannot write here. "
        f"{follows}. The lines below show the state at its last write"
    )


def describe_member(member: dict[str, Any], *, is_over: bool) -> str:
    """Return a line about a worker. Args: is_over: whether the job has ended."""
    code = member["exit_code"]
    state = member["state"] if code is None else f"has {describe_exit(code)}"
    if is_over and state in (WORKS, WAITS):  # the record of a worker does not change when the driver ends the worker
        state = "was ended with the job"
    shown = {FAILED: "has failed", DONE: "has done its work", WAITS: "waits for the next generation"}
    return f"rank {member['rank']}: {member['name']}, since generation {member['since']}, {shown.get(state, state)}"


def list_newcomers(record: dict[str, Any]) -> list[str]:
    """Return a line about each process that has not joined the job yet."""
    if record["end"] is not None:  # they have ended with the job
        return []
    return [
        f"{one['name']}: {'is ready, and joins at the next commit' if one['is_ready'] else 'starts'}, "
        f"begun {describe_duration(record['written'] - one['began'])} ago"
        for one in record.get("newcomers", [])
    ]


def describe_generation(one: dict[str, Any], *, is_newest: bool) -> str:
    """Return a line about a generation."""
    parts = [f"{one['number']}: {_count(one['size'])} from {clock(one['began'])}"]
    parts += [f"{word} {list_names(one[key])}" for key, word in (("came", "came"), ("went", "went")) if one[key]]
    if one["lost"]:
        parts.append(f"{describe_loss(one['lost'])} lost")
    if why := describe_cause(one):
        parts.append(f"{'then' if is_newest else 'until'} {why}")
    return "; ".join(parts)


def describe_cause(one: dict[str, Any]) -> str:
    """Return the reason why a generation has ended or is about to end; empty: no reason is known."""
    if one["first_code"]:
        return describe_failure(one)
    return "the workers changed" if one["hosts"] else ""


def describe_failure(one: dict[str, Any]) -> str:
    """Return a text about the worker that failed first in a generation."""
    others = f", the first of {one['failures']}" if one["failures"] > 1 else ""
    how = "was silent, and the driver has ended it" if one["first_silent"] else describe_exit(one["first_code"])
    return f"{one['first_name']}, rank {one['first_rank']}, {how}{others}"


def describe_loss(seconds: float) -> str:
    """Return the time lost to a change as text; the time may be a few milliseconds."""
    return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else describe_duration(seconds)


def _count(size: int) -> str:
    return "1 worker" if size == 1 else f"{size} workers"


# ----- Writing -----


LEAST_S = 0.1  # minimum seconds between two records
CLOSING_S = 5.0  # maximum seconds that `close` waits until the last record is written
LOCK = ".driver.lock"


def lock_output(directory: Path, is_continued: bool) -> DirectoryLock | None:
    """Lock the directory --output-filename for this driver. Return None if this driver writes without the lock.

    Args: is_continued: whether this driver takes over the job of an earlier driver. The earlier driver may be frozen,
        and may still hold the lock. This driver then writes without the lock.

    Raises: DirectoryInUseError: another driver holds the lock.  OSError: the lock file cannot be opened.
    """
    try:
        return DirectoryLock(directory / LOCK, f"--output-filename: another driver writes into {directory}")
    except DirectoryInUseError:
        if not is_continued:
            raise
        return None


class MembershipRecorder(threading.Thread):
    """A thread that writes membership.json from its construction until `close`.

    Args: history: history of the job.  is_continued: whether to continue the file of an earlier driver of the same job.

    Raises: VolumeError: the directory cannot be made.  DirectoryInUseError: another driver writes into the directory.
    """

    def __init__(self, settings: ElasticSettings, history: JobHistory, is_continued: bool) -> None:
        super().__init__(name="membership-file", daemon=True)
        directory = Path(settings.output_filename or "")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock_output(directory, is_continued)
        except OSError as exc:
            raise unwritable(directory, exc) from exc
        self._path = directory / NAME
        self._history = history
        self._facts = {
            "version": VERSION,
            "driver": f"{socket.gethostname()}, process {os.getpid()}",
            "began": steady_time(),
            "least": settings.min_num_proc,
            "most": settings.max_num_proc,
            "goes_on": bool(settings.store_dir),
        }
        self._end: dict[str, object] | None = None
        self._lines = RateLimit(PROBLEM_LINE_S)
        if is_continued:
            # the file only informs users; a job does not end because its past cannot be read
            with contextlib.suppress(OSError, DamagedError):
                found = read_record(self._path)
                self._facts["began"] = found["began"]
                history.restore(found)
        self._write(None)
        self.start()

    def close(self, status: int, reason: str) -> None:
        """Write the last record, which describes the end of the job, and release the directory."""
        self._end = {"status": status, "reason": reason[:MOST_REASON]}
        self._history.changed.set()
        self.join(CLOSING_S)
        if self.is_alive():
            glog.warning(f"{self._path} lacks the end of the job: the volume has not answered for {CLOSING_S:g} s")
        elif self._lock is not None:
            self._lock.release()

    def run(self) -> None:
        """Write until closed."""
        while self._end is None:
            self._history.changed.wait(INTERVAL_S)
            self._history.changed.clear()
            self._write(None)
            if self._end is None:
                time.sleep(LEAST_S)
        self._write(self._end)

    def _write(self, end: dict[str, object] | None) -> None:
        record = {**self._facts, **self._history.describe(), "end": end, "written": steady_time()}
        try:
            write_record(self._path, json.dumps(record))
        except OSError as exc:
            if self._lines.is_due(time.monotonic()) or end is not None:
                glog.warning(f"{self._path} cannot be written: {exc.strerror}")

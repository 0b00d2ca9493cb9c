"""Read the facts in the output files of a job. A file may be missing, incomplete or malformed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import read_text_file, tells_nothing
from paddle_base.runtime.errors import HELD_PORT, DamagedError, LostPeerError, PeerUnreachableError, StoppedError
from paddle_base.runtime.health.steady_time import steady_time
from paddle_cluster.elastic import membership_file
from trainer.records.records import Record
from trainer.report.history import History, RecordFile
from trainer.report.html.text import number, whole

# exit codes of a program that has lost a peer; its error is an effect of another failure
PASSED_ON = (PeerUnreachableError.exit_code, LostPeerError.exit_code)
LOST_POD = "pod"  # the value of `program` in the error of a pod that ended without an error report
_PASS = re.compile(r"pass-\d{5}(-\d{3,})?")
_LOG = re.compile(r"(train|server)\.log(\.\d+)?")


@dataclass(frozen=True)
class File:
    """A file or directory of the output. `name` is its path below the output; `bytes` is the size of a file."""

    name: str
    bytes: int | None = None


@dataclass(frozen=True)
class Attempt:
    """One attempt. `origin` is the name of the save from which it continued; `failure` is the error that ended it."""

    name: str
    started: float | None
    ended: float | None
    origin: str
    failure: Record | None


@dataclass
class Listing:
    """The content of an output's directories: the pods' errors and progress, files, and the names of saved passes.

    errors: in the order in which they were written; `written` is the time of the file, which the volume sets.
    """

    errors: list[Record] = field(default_factory=list)
    trainers: dict[str, Record] = field(default_factory=dict)
    files: list[File] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)


@dataclass
class Facts:
    """All facts that a report shows.

    `job` is the content of the launcher's job.json. `membership` is the record of the driver of an all-reduce job. The
    record of a missing file is empty.
    """

    output: Path
    now: float
    history: History = field(default_factory=History)
    progress: Record = field(default_factory=dict)
    job: Record = field(default_factory=dict)
    listing: Listing = field(default_factory=Listing)
    membership: Record = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the job, which is the parent directory of output/: <JOB_PATH>/<JOB_NAME>/output."""
        path = self.output
        return path.parent.name if path.name == "output" and path.parent.name else path.name or "job"

    @property
    def is_known(self) -> bool:
        """Whether the output has at least one file of a run."""
        history = self.history
        told = (history.starts, history.passes, self.progress, self.job, self.listing.errors, self.membership)
        return any(told)

    @property
    def attempt(self) -> str:
        """The name of the newest attempt; "" without a launcher."""
        attempts = _objects(self.job.get("attempts"))
        return str(attempts[-1].get("name", "") if attempts else self.history.start.get("attempt", ""))

    def attempts(self) -> list[Attempt]:
        """Return the attempts in order, as the launcher's job.json or, without a launcher, the records list them."""
        times: dict[str, float] = {}
        for start in self.history.starts:
            if (begun := number(start.get("time"))) is not None:
                times.setdefault(str(start.get("attempt", "")), begun)
        known = _objects(self.job.get("attempts")) or [
            {"name": start.get("attempt", ""), "origin": Path(str(start.get("resumed_from") or "")).name}
            for start in self.history.starts
        ]
        begins = [_read_clock(one.get("started"), times.get(str(one.get("name")))) for one in known]
        if not self.job:
            begins = [number(start.get("time")) for start in self.history.starts]
        found = []
        for index, one in enumerate(known):
            name = str(one.get("name", ""))
            failure = _failure_of(one) or (first_failure(self.listing.errors, name) if name else None)
            following = begins[index + 1] if index + 1 < len(begins) else self._last_time(name)
            ended = number(failure.get("time")) if failure else following
            found.append(Attempt(name, begins[index], ended, str(one.get("origin") or ""), failure))
        return found

    def _last_time(self, attempt: str) -> float | None:
        """Return the time of the last record of an attempt."""
        history = self.history
        records = [history.end, *history.passes[-1:], *history.tests[-1:], *history.starts[-1:], self.progress]
        times = [number(one.get("time")) for one in records if str(one.get("attempt", "")) == attempt]
        return max((one for one in times if one is not None), default=None)


def first_failure(errors: list[Record], attempt: str) -> Record | None:
    """Return the error that ended an attempt, by the rule of the launcher; None if no error is reported.

    The errors are in the order in which their files were written; their times come from the clocks of the pods. The
    cause is the earliest error of the first non-empty group of errors. The first group has the errors of pods that
    failed by themselves. The second group has the errors of pods that were stopped from outside, because a Job stops
    all other pods when one pod has failed. The third group has the errors that only report a lost peer, because another
    failure caused these errors.
    """
    own = [error for error in errors if str(error.get("attempt", "")) == attempt]
    return min(own, key=_rank, default=None)


def _rank(error: Record) -> int:
    is_stopped = error.get("exit_code") == StoppedError.exit_code and not error.get("signal")
    return 2 if is_passed_on(error) else int(is_stopped)


def is_passed_on(error: Record) -> bool:
    """Return whether a pod failed because of another pod. A killed program or an occupied port is itself a cause."""
    if error.get("signal") or error.get("program") == LOST_POD or HELD_PORT in str(error.get("message")):
        return False
    return error.get("exit_code") in PASSED_ON


class Reader:
    """Read the output of a job repeatedly. Of records.jsonl, only the new lines are read.

    To list the directories of 1,000 pods on a network file system takes long. Therefore a pause follows each listing.
    The pause is twenty times as long as the listing.
    """

    def __init__(self, output: Path, clock: Callable[[], float] = steady_time) -> None:
        self.output, self._clock = output, clock
        self._records = RecordFile(output / "records.jsonl")
        self._listing = Listing()
        self._due = 0.0

    def read(self) -> Facts:
        """Return all facts of the output. A missing or malformed file is not an error.

        Raises: OSError: a file or a directory exists but cannot be read.
        """
        now = self._clock()
        if now >= self._due:
            self._listing = list_output(self.output)
            self._due = now + 20 * (self._clock() - now)
        return Facts(
            self.output,
            now,
            self._records.read(),
            read_object(self.output / "progress.json"),
            read_object(self.output / "job.json"),
            self._listing,
            read_membership(self.output),
        )


def list_output(output: Path) -> Listing:
    """Return the errors and the files of a job."""
    found = Listing()
    for path in _list(output):
        if re.fullmatch(r"node_\d{1,9}", path.name):
            _list_node(found, output, path)
        elif _PASS.fullmatch(path.name):
            found.passes.append(path.name)
        elif re.fullmatch(r"rank\.\d{1,9}", path.name):
            found.files += [_describe(output, one) for one in _list(path) if one.name in ("stdout", "stderr")]
        elif path.name == "state":
            found.files.append(_describe(output, path))
    found.errors.sort(key=lambda error: float(error["written"]))
    found.files.sort(key=lambda file: _natural(file.name))
    return found


def read_object(path: Path) -> Record:
    """Return the object in a JSON file, or an empty object if there is no file or the file has no object.

    Raises: OSError: the file exists but cannot be read.
    """
    try:
        found = json.loads(read_text_file(path))
    except OSError as error:
        if not tells_nothing(error):
            raise
        return {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_membership(output: Path) -> Record:
    """Return the record of the driver of an all-reduce job, or an empty record if there is none.

    Raises: OSError: the file exists but cannot be read.
    """
    try:
        return membership_file.read_record(output / membership_file.NAME)
    except OSError as error:
        if not tells_nothing(error):
            raise
    except DamagedError:
        pass
    return {}


def _list_node(found: Listing, output: Path, node: Path) -> None:
    for path in _list(node):
        if path.name.startswith("error.json"):
            error = read_object(path)
            if number(error.get("time")) is not None and "message" in error:
                found.errors.append({**error, "written": _written(path)})
        elif path.name == "progress.json":
            found.trainers[node.name.removeprefix("node_")] = read_object(path)
        elif _LOG.fullmatch(path.name):
            found.files.append(_describe(output, path))


def _written(path: Path) -> float:
    """Return the time of a file, which the volume's clock sets for the files of all pods; 0 if the file is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts node_9 before node_10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _list(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:
        if not tells_nothing(error):
            raise
        return []


def _describe(output: Path, path: Path) -> File:
    name = str(path.relative_to(output))
    try:
        return File(f"{name}/") if path.is_dir() else File(name, path.stat().st_size)
    except OSError:
        return File(name)


def _failure_of(attempt: Record) -> Record | None:
    """Return the first failure of an attempt in job.json, if trainer 0's launcher has recorded it."""
    failure = attempt.get("failure")
    return failure if isinstance(failure, dict) and number(failure.get("time")) is not None else None


def _objects(value: Any) -> list[Record]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read_clock(started: Any, recorded: float | None) -> float | None:
    """Return the start time of an attempt. job.json has the local time of the pods and does not name the time zone."""
    try:
        clock = time.mktime(time.strptime(str(started), "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return recorded
    if recorded is not None and abs(recorded - clock) > 1800:  # the pods and this machine have different time zones
        clock += round((recorded - clock) / 900) * 900
    return clock


def last_line(error: Record) -> str:
    """Return the most important line of a message: the last line of a program's log or of a traceback."""
    lines = str(error.get("message", "")).strip().splitlines()
    return lines[-1].strip() if lines else "no message"


def describe_error(error: Record) -> str:
    """Return a text with the failed pod, its program and the exit status. The text omits the error message."""
    place = f"trainer {whole(error.get('trainer_id'))} on {error.get('host', 'an unknown host')}"
    if error.get("program") == LOST_POD:
        return f"{place}: the pod was lost"
    return f"{place}: {error.get('program', 'program')}, exit status {whole(error.get('exit_code'))}"

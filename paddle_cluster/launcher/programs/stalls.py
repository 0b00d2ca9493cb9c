"""Find the trainers of a job that complete no batches, and describe what each of these trainers waits for.

The information comes from two files of each trainer, progress.json and the end of train.log. A trainer writes
progress.json every few seconds, even while it waits. A trainer that has not written progress.json for SILENCE_S is
silent. The process of a silent trainer is frozen, or its pod is gone. The times of the files are compared with each
other, because the clock of the volume sets all of them. If all files seem to be old or from the future, the clock of
this machine may be wrong, and the files are observed for some seconds.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paddle_base.runtime.status_files import read_settled
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.programs.process import read_tail
from paddle_cluster.launcher.text import END_OF_TIME, JsonObject, list_some, number_of
from paddle_cluster.launcher.variables import MOST_TRAINERS

# seconds without a batch after which a trainer is listed; a waiting trainer logs the reason within this time
STALL_S = 30.0
SILENCE_S = 60.0  # seconds after which a trainer without a new progress.json is silent; the file is written every 5 s
WATCH_S = 6.0  # seconds for which the files are observed if all of them seem to be old
MOST_READ = 8  # maximum number of logs that are read, because each log takes 5 s if the volume does not answer
MOST_SHOWN = 5  # maximum number of trainers that are described in separate lines
MOST_TEXT = 400  # maximum number of characters of a log line
LAST_LINES = 3  # number of lines at the end of a log that are searched for a message about a wait
PHASES = {
    "data": "waits for its data",
    "compute": "computes",
    "exchange": "waits for servers or other trainers",
    "test": "tests",
    "save": "saves",
}
_GLOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]\s]+\] (.*)")
_WAIT = re.compile(r"has waited \d+ s |waiting for |waits for ")
_TRAINERS = re.compile(r"\btrainers? (\d{1,9}(?:, \d{1,9})*)")


class Stall(NamedTuple):
    """A trainer that completes no batches.

    Attributes: number: the trainer's id. host: name of the trainer's pod, or "". idle_s: seconds since its last batch;
    None: the trainer has not begun. silent_s: seconds since its last report; None: the trainer still reports. reason:
    what the trainer waits for, or "".
    """

    number: int
    host: str
    idle_s: float | None
    silent_s: float | None = None
    reason: str = ""

    @property
    def waits_for(self) -> frozenset[int]:
        """The ids of the trainers that this trainer waits for, according to the reason."""
        _, _, named = self.reason.partition(" waits for ")
        return frozenset(int(one) for found in _TRAINERS.findall(named) for one in found.split(", ")) - {self.number}

    def __str__(self) -> str:
        """Return the line that describes this trainer to users."""
        place = f"trainer {self.number}" + (f" on {self.host}" if self.host else "")
        if self.silent_s is not None:
            return f"{place} is silent: it has reported nothing for {_spell(self.silent_s)}; it is frozen or gone"
        since = "has not begun to train" if self.idle_s is None else f"has completed no batch for {_spell(self.idle_s)}"
        return f"{place} {since}: {self.reason or 'its log does not say why'}"


def describe_stalls(
    output: Path, trainers: Mapping[str, JsonObject], record: JobRecord | None, now: float
) -> list[str]:
    """Return lines about the trainers that complete no batches, or [] if all trainers complete batches.

    Args: trainers: {trainer id: the content of its progress.json} of the newest attempt. now: seconds since the epoch.
    """
    places = [str(pod.get("place") or "") for pod in record.pods] if record else []
    # the launchers have just written job.json for an attempt that has just begun; its trainers may begin soon
    is_young = abs(now - _written(output / "job.json")) < STALL_S  # a start in the future shows a wrong clock
    silences = measure_silences(output, [*trainers], now)
    stalls = find_stalls(trainers, 0 if is_young or not record else record.gradient_num, places, silences)
    if not stalls:
        return []
    known = {one.number: explain(output, one) for one in stalls[:MOST_READ]}
    # the log of a trainer that other trainers wait for may not be among the first MOST_READ logs
    for number in sorted(find_culprits(known.values()))[:MOST_READ]:
        known.update({one.number: explain(output, one) for one in stalls if one.number == number})
    culprits = find_culprits(known.values())
    head = f"{_name(one.number for one in stalls)} of {max(len(trainers), record.gradient_num if record else 0)}"
    lines = [f"no progress: {head} complete{'s' if len(stalls) == 1 else ''} no batch" + _point_to(culprits)]
    shown = sorted(known.values(), key=lambda one: (one.number not in culprits, one.silent_s is None, one.number))
    lines += [f"  {one}" for one in shown[:MOST_SHOWN]]
    if len(stalls) > MOST_SHOWN:
        lines.append(f"  and {len(stalls) - MOST_SHOWN} more: the end of {output}/node_<id>/train.log says why")
    return lines


def measure_silences(output: Path, trainers: Sequence[str], now: float) -> dict[str, float]:
    """Return how many seconds ago each trainer wrote its progress. Args: trainers: the ids.  now: epoch seconds."""

    def look() -> dict[str, float]:
        paths = {number: output / f"node_{number}" / "progress.json" for number in trainers}
        return {number: _written(path) or _written(output / "progress.json") for number, path in paths.items()}

    def find_newest() -> dict[str, Any]:
        return {"written": max(look().values(), default=0.0), "end": None if trainers else {}}

    newest, age, is_late = read_settled(find_newest, lambda: now, SILENCE_S, WATCH_S)
    silence = max(age, SILENCE_S) if is_late else 0.0
    return {number: newest["written"] - written + silence for number, written in look().items()}


def find_stalls(
    trainers: Mapping[str, JsonObject], count: int, places: Sequence[str], silences: Mapping[str, float]
) -> list[Stall]:
    """Return the trainers that are silent, have not begun to train, or have completed no batch for STALL_S.

    Args: trainers: see describe_stalls. count: number of trainers that should have begun. places: names of the pods,
        ordered by trainer id. silences: seconds since each trainer's last report.
    """
    found = []
    for number in range(min(count, MOST_TRAINERS)):
        if str(number) not in trainers:
            found.append(Stall(number, places[number] if number < len(places) else "", None))
    for name, told in trainers.items():
        if told.get("status") != "training" or not re.fullmatch("[0-9]{1,9}", name):
            continue
        idle_s, age_s = number_of(told.get("idle_seconds")), silences.get(name, 0.0)
        host, reason = str(told.get("host") or ""), PHASES.get(str(told.get("phase")), "")
        if age_s >= SILENCE_S:
            found.append(Stall(int(name), host, idle_s, age_s))
        elif idle_s is not None and idle_s >= STALL_S:
            found.append(Stall(int(name), host, idle_s, None, reason))
    return sorted(found, key=lambda one: one.number)


def explain(output: Path, stall: Stall) -> Stall:
    """Return a copy of a stall with the reason that the end of the trainer's log contains."""
    if stall.silent_s is not None:
        return stall
    log = output / f"node_{stall.number}" / "train.log"
    if stall.idle_s is None and not _is_of_attempt(log, output / "job.json"):
        return stall._replace(reason="the launcher has not started the trainer; see the end of the pod's log")
    lines = [line for line in read_tail(log).splitlines() if line.strip()][-LAST_LINES:]
    messages = [match[1] for line in lines if (match := _GLOG.search(line))]
    waits = [message for message in messages if _WAIT.search(message)]
    if waits:
        return stall._replace(reason=shorten_text(drop_repeats(waits[-1])))
    if messages and not stall.reason:
        return stall._replace(reason=f"the log ends with: {shorten_text(messages[-1])}")
    return stall


def find_culprits(stalls: Iterable[Stall]) -> set[int]:
    """Return the ids of the trainers that other trainers wait for, and that wait for no trainer themselves."""
    waits = {one.number: one.waits_for for one in stalls}
    named = {number for numbers in waits.values() for number in numbers}
    return {number for number in named if not waits.get(number)}


def drop_repeats(text: str) -> str:
    """Return a log line about the waits of several pservers, without parts that repeat the words of another part."""
    kept: list[str] = []
    for part in text.split("; "):
        claim = re.sub(r"^pserver \S+ ", "", part)
        if not any(claim in one for one in kept):
            kept.append(part)
    return "; ".join(kept)


def shorten_text(text: str) -> str:
    """Return at most MOST_TEXT characters of a text."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."


def _is_of_attempt(log: Path, record: Path) -> bool:
    """Return whether a log was written after the attempt began; a log of an earlier attempt may have the same name."""
    try:
        return log.stat().st_mtime >= record.stat().st_mtime
    except OSError:
        return False


def _written(path: Path) -> float:
    """Return when a file was written, in seconds since the epoch; 0 if this is unknown."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _point_to(culprits: Iterable[int]) -> str:
    found = sorted(culprits)
    whom = "it" if len(found) == 1 else "them"
    return f"; look at {_name(found)} first, because the others wait for {whom}" if found else ""


def _name(numbers: Iterable[int]) -> str:
    found = [str(number) for number in numbers]
    return f"trainer{'s' * (len(found) > 1)} {list_some(found, ', ')}"


def _spell(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(min(max(0.0, seconds), END_OF_TIME))))

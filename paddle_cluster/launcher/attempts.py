"""The data of an attempt: its record, its result in this pod, and what a launcher remembers of earlier attempts.

In an attempt, an agreed set of pods runs the job's programs until all programs finish or one of the programs fails.

No I/O.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
from collections.abc import Iterable

from paddle_base.runtime.durable_files import MOST_TEXT_BYTES
from paddle_base.runtime.saves import pass_name
from paddle_base.runtime.schema import MOST_EXACT, Integer, Items, Number, Record, Shape, Text, Truth
from paddle_base.runtime.status_files import clock
from paddle_cluster.launcher.cluster.pods import IdMap, PodStatus
from paddle_cluster.launcher.errors import NEVER_RETRY
from paddle_cluster.launcher.layout import PodLayout
from paddle_cluster.launcher.shards.overlay import StagedData
from paddle_cluster.launcher.text import END_OF_TIME, JsonObject, list_some, parse_file, say
from paddle_cluster.launcher.variables import MOST_TRAINERS

# the keys of each entry of JobRecord.attempts; an entry also gets the key `failure` when its attempt has ended
ATTEMPT = ("name", "started", "origin")
MESSAGE_LIMIT = 2000  # maximum number of characters of a failure's message in job.json


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """The content of output/job.json: the Job that owns the output directory, this attempt, and earlier attempts."""

    job_uid: str  # UID of the Job that wrote the record last
    passes: int  # number of passes that the Job trains; 0: the end of a program of ENTRY ends the Job
    finished: bool
    attempt: int  # number of this attempt, from 1; the names of an earlier attempt's log files end in its number
    pod_uids: list[str]  # sorted UIDs of the pods of this attempt
    start_pass: int  # the first pass of this attempt if it resumes from a pass directory, otherwise 0
    config: str = ""  # the TRAIN_CONFIG_DIR with which the parameters were trained
    checkpoint: str = ""  # name of the checkpoint directory that this attempt resumes from, or ""
    # numbers of trainers and pservers, and of the ports of a pserver; `resume.choose_origin` compares them with the
    # numbers of the previous attempt
    gradient_num: int = 0
    pserver_num: int = 0
    ports_num: int = 0
    ports_num_sparse: int = 0
    # number of consecutive attempts without progress before this attempt; the field's name must not change, because the
    # job.json files of running Jobs contain the name
    fruitless: int = 0
    # for each attempt of this Job: its name, its start time, and the save that it resumed from (the keys ATTEMPT)
    attempts: list[JsonObject] = dataclasses.field(default_factory=list)
    given_up: bool = False  # whether `fruitless` exceeds RESTARTS; if so, no launcher begins another attempt
    # for each pod, ordered by trainer id: ip, place (name and node), uid, index (completion index)
    pods: list[JsonObject] = dataclasses.field(default_factory=list)
    # for each pod that is absent from this attempt: index, place, since (start of the absence in epoch seconds);
    # CONF_PADDLE_GRADIENT_MIN permits attempts without some pods
    absent: list[JsonObject] = dataclasses.field(default_factory=list)
    job_trainers: int = 0  # number of trainers in the Job's spec; gradient_num of them take part
    job_pservers: int = 0

    @property
    def name(self) -> str:
        """The name that all programs use for this attempt: its number and a hash of its set of pods."""
        pods = " ".join(self.pod_uids).encode("utf-8", "backslashreplace")
        return f"{self.attempt}.{hashlib.sha256(pods).hexdigest()[:8]}"

    @property
    def is_program(self) -> bool:
        """Whether the trainers run a program of ENTRY."""
        return not self.passes

    @property
    def origin(self) -> str:
        """Name of the checkpoint or pass directory that this attempt resumes from, or ""."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")

    @property
    def failure(self) -> JsonObject | None:
        """The first failure of this attempt, or None if trainer 0's launcher has recorded no failure."""
        return failure_in(self.attempts[-1]) if self.attempts and self.attempts[-1]["name"] == self.name else None

    def ended_by(self, failure: JsonObject) -> JobRecord:
        """Return a copy of this record with `failure` as the first failure of this attempt."""
        if not self.attempts or self.attempts[-1]["name"] != self.name:
            return self
        told = {**failure, "message": str(failure["message"])[-MESSAGE_LIMIT:]}
        return dataclasses.replace(self, attempts=[*self.attempts[:-1], {**self.attempts[-1], "failure": told}])

    @property
    def layout(self) -> str:
        """A text with the numbers of programs and ports; the saved state of the programs depends on these numbers."""
        ports = f"{self.ports_num} dense and {self.ports_num_sparse} sparse ports"
        return f"{self.gradient_num} trainers and {self.pserver_num} pservers of {ports}"

    @property
    def indexes(self) -> list[int]:
        """The completion index of each pod, ordered by trainer id. Raises: KeyError: the record has no indexes."""
        return [int(pod["index"]) for pod in self.pods]

    @property
    def first_uid(self) -> str:
        """The UID of trainer 0's pod, or "" if the record does not contain it."""
        return str(self.pods[0].get("uid", "")) if self.pods else ""

    def describe_absent(self) -> str:
        """Describe which pods are absent from this attempt; return "" if all pods of the Job take part."""
        if not self.absent:
            return ""
        pservers = f", {self.pserver_num} of {self.job_pservers} pservers" * (self.pserver_num < self.job_pservers)
        missing = [
            f"pod {pod['index']} ({pod['place'] or 'never seen'}) since {clock(pod['since'])}" for pod in self.absent
        ]
        return f"{self.gradient_num} of {self.job_trainers} trainers{pservers}; without {list_some(missing, ', ')}"

    @property
    def roles(self) -> PodLayout:
        """The pods of this attempt that run a trainer, and the pods that run a pserver."""
        trainers = self.gradient_num or MOST_TRAINERS  # a record that an older version wrote has no number of trainers
        is_apart = len(self.pods) > max(trainers, self.pserver_num)
        return PodLayout(trainers, self.pserver_num, is_apart)

    @property
    def ids(self) -> IdMap:
        """The set of pods of this attempt, as trainer 0's launcher found it."""
        places = {str(pod.get("ip")): str(pod.get("place")) for pod in self.pods}
        ids = ((ip, number) for number, ip in enumerate(places))
        indexes = {str(pod.get("ip")): int(pod["index"]) for pod in self.pods if is_index(pod.get("index"))}
        return IdMap(ids, pod_uids=self.pod_uids, job_uid=self.job_uid, places=places, indexes=indexes)


def is_later(found: JobRecord, known: JobRecord) -> bool:
    """Return whether a found record describes a later attempt than a known record.

    Attempt numbers restart from 1 if job.json and trainer 0's launcher were lost together. The new attempt then has
    another set of pods, and its name is not in the known record's list of attempts. If a network file system returns an
    old version of job.json, the name of the old attempt is in the known record's list of attempts.
    """
    names = {known.name, *(attempt["name"] for attempt in known.attempts)}
    return found.attempt > known.attempt or (found.pod_uids != known.pod_uids and found.name not in names)


_INDEX, _TIME, _TEXT = Integer(0, 2 * MOST_TRAINERS - 1), Number(0.0, END_OF_TIME), Text(MOST_TEXT_BYTES)
_WHOLE = Integer(-1 - MOST_EXACT)
_LISTS: dict[str, Shape] = {
    "pod_uids": _TEXT,
    "attempts": Record(**dict.fromkeys(ATTEMPT, _TEXT)),
    "pods": Record(),
    "absent": Record(index=_INDEX, since=_TIME, place=_TEXT),
}
_VALUES: dict[str, Shape] = {"str": _TEXT, "int": _WHOLE, "bool": Truth()}
_RECORD = Record(
    *(one.name for one in dataclasses.fields(JobRecord)),  # `JobRecord` knows which fields may be absent
    **{
        one.name: Items(_LISTS[one.name], MOST_TEXT_BYTES) if one.name in _LISTS else _VALUES[str(one.type)]
        for one in dataclasses.fields(JobRecord)
    },
)
_ERROR = Record(
    time=_TIME, trainer_id=_WHOLE, exit_code=_WHOLE, **dict.fromkeys(("attempt", "host", "program", "message"), _TEXT)
)


@functools.lru_cache(maxsize=1)  # the launcher often reads job.json, which is long and rarely changes
def parse_record(content: bytes) -> JobRecord | None:
    """Return the record that a file contains, or None if the content is not a record."""
    try:
        found = parse_file(content)
        record = JobRecord(**found) if _RECORD.fits(found) else None
    except (ValueError, TypeError):
        return None
    has_indexes = record is None or not record.absent or all(is_index(pod.get("index")) for pod in record.pods)
    return record if has_indexes else None


def is_index(value: object) -> bool:
    """Return whether a JSON value can be a completion index."""
    return _INDEX.fits(value)


def is_error(value: object) -> bool:
    """Return whether a JSON value has the form of the errors that failures.make_error builds."""
    return _ERROR.fits(value)


def failure_in(attempt: JsonObject) -> JsonObject | None:
    """Return the first failure of an entry of JobRecord.attempts, or None if the entry contains no failure."""
    return attempt["failure"] if is_error(attempt.get("failure")) else None


class AttemptState(enum.Enum):
    """The state of an attempt, according to files on the volume. Each value says what launchers do in that state."""

    FORMING = "the record lists the pods; each pod stages its shard and starts its pserver, and no trainer has begun"
    RUNNING = "the trainers train; each launcher watches both programs of its pod"
    RESTARTING = "a failure ended the attempt; the launchers stop their programs, stay alive and form the next attempt"
    FAILED = "a failure that a retry cannot repair ended the attempt; the pod ends with the failure's exit status"
    FINISHED = "all passes are trained, and nothing is left to do"
    GIVEN_UP = "more than RESTARTS consecutive attempts made no progress; no launcher begins another attempt"

    @property
    def is_broken(self) -> bool:
        """Whether a failure has ended the attempt before its passes were trained."""
        return self in (AttemptState.RESTARTING, AttemptState.FAILED)


def state_of(record: JobRecord, failure: JsonObject | None, progress: JsonObject) -> AttemptState:
    """Return the state of the newest attempt.

    Args: failure: the first failure that the attempt's pods have reported. progress: the last report of trainer 0,
        possibly about an earlier attempt. A program of ENTRY may never report.
    """
    if record.finished:
        return AttemptState.FINISHED
    if record.given_up:
        return AttemptState.GIVEN_UP
    if failure:
        is_final = failure.get("exit_code") in NEVER_RETRY and not failure.get("signal")
        return AttemptState.FAILED if is_final else AttemptState.RESTARTING
    is_running = record.is_program or progress.get("attempt") == record.name
    return AttemptState.RUNNING if is_running else AttemptState.FORMING


@dataclasses.dataclass
class AttemptHistory:
    """What one launcher remembers of its earlier attempts; only the main thread uses such an object."""

    record: JobRecord | None = None  # record of the last attempt of this launcher
    is_dissolved: bool = False  # whether the last attempt ended before training because the set of pods changed
    status: int = 0  # exit status of this pod in the last attempt
    staged: StagedData | None = None  # the shard and the files of other shards that are in ./data
    lost: set[str] = dataclasses.field(default_factory=set)  # UIDs of the failed pods that have been logged
    # {number of an attempt: the decisions about the next attempt that have been logged}
    said: dict[int, set[str]] = dataclasses.field(default_factory=dict)

    @property
    def attempt(self) -> int:
        """The number of the last attempt."""
        return self.record.attempt if self.record else 0

    def is_news(self, record: JobRecord) -> bool:
        """Return whether a record describes an attempt after this launcher's last attempt."""
        return self.record is None or is_later(record, self.record)

    def note(self, result: AttemptResult) -> None:
        """Remember how the last attempt ended in this pod."""
        self.status, self.is_dissolved = result.status, result.is_dissolved

    def say_once(self, message: str) -> None:
        """Log a decision about the next attempt once, even if a full volume makes the launcher repeat the decision."""
        said = self.said.setdefault(self.attempt, set())
        if message not in said:
            say(message)
        said.add(message)

    def name_lost(self, pods: Iterable[PodStatus]) -> None:
        """Log the status of each failed pod once, because a pod may fail without a report of its failure."""
        for pod in pods:
            if pod.phase == "Failed" and pod.uid not in self.lost:
                self.lost.add(pod.uid)
                say(f"this Job has lost {pod}")


@dataclasses.dataclass(frozen=True)
class Meeting:
    """The pods that have met, and the attempt on which they agree. `ids` is empty if the Job has given up."""

    ids: IdMap
    record: JobRecord


@dataclasses.dataclass
class AttemptResult:
    """The end of this pod's programs: the pod's exit status, the program that failed first, and its message."""

    status: int
    program: str = ""
    message: str = ""
    # Name of the signal that killed the program, or "". The exit status 75 of a killed program can also mean a lost
    # peer. The signal shows that the killed program itself is the cause of the attempt's end.
    signal: str = ""
    is_dissolved: bool = False  # whether the set of pods changed before training began; if so, no program has failed

"""An attempt: its record, how it ended in this pod, and what a launcher knows of the attempts before."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
from collections.abc import Iterable

from launcher.cluster.layout import PodLayout
from launcher.cluster.pods import IdMap, PodStatus
from launcher.errors import NEVER_RETRY
from launcher.shards.division import Portion
from launcher.text import JsonObject, is_shallow, is_time, list_some, parse_json, say
from launcher.variables import MOST_TRAINERS

ATTEMPT = ("name", "started", "origin")  # the parts of each entry of JobRecord.attempts; `failure` comes at its end
MESSAGE_LIMIT = 2000  # characters of the message of a failure in job.json, which keeps 100 attempts


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """output/job.json: whose output this is, which set of pods is writing it, and how the attempts before went."""

    job_uid: str  # of the Job that wrote last
    passes: int  # wanted by it: the number of the last one, plus 1
    finished: bool
    attempt: int  # counts from 1; the logs of earlier ones keep their number as suffix
    pod_uids: list[str]  # the set of pods of this attempt
    start_pass: int  # the first pass of this attempt, where it goes on from a pass directory; else 0
    config: str = ""  # TRAIN_CONFIG_DIR that the parameters belong to
    checkpoint: str = ""  # name of the state directory that this attempt goes on from; else ""
    # the numbers of the programs that keep the state: a checkpoint can only be continued by the same numbers
    gradient_num: int = 0
    pserver_num: int = 0
    ports_num: int = 0
    ports_num_sparse: int = 0
    # attempts without progress, in a row just before this one; the key in job.json stays, because Jobs that run have it
    fruitless: int = 0
    attempts: list[JsonObject] = dataclasses.field(default_factory=list)  # of this Job: name, started, origin
    given_up: bool = False  # `fruitless` is above RESTARTS, and no launcher begins another attempt
    # by trainer id: ip, place (name and node), uid, index (completion index)
    pods: list[JsonObject] = dataclasses.field(default_factory=list)
    # the pods that this attempt does without (CONF_PADDLE_GRADIENT_MIN): index, place, since (epoch seconds)
    absent: list[JsonObject] = dataclasses.field(default_factory=list)
    job_trainers: int = 0  # that the Job asks for; gradient_num of them take part
    job_pservers: int = 0

    @property
    def name(self) -> str:
        """The attempt as the programs know it: its number and its set of pods."""
        pods = " ".join(self.pod_uids).encode("utf-8", "backslashreplace")
        return f"{self.attempt}.{hashlib.sha256(pods).hexdigest()[:8]}"

    @property
    def origin(self) -> str:
        """Name of the state or pass directory that this attempt goes on from; "" from the beginning."""
        return self.checkpoint or (pass_name(self.start_pass - 1) if self.start_pass else "")

    @property
    def failure(self) -> JsonObject | None:
        """What failed first in this attempt, once trainer 0's launcher has written that down."""
        return failure_in(self.attempts[-1]) if self.attempts and self.attempts[-1]["name"] == self.name else None

    def ended_by(self, failure: JsonObject) -> JobRecord:
        """Returns the record with what failed first in this attempt."""
        if not self.attempts or self.attempts[-1]["name"] != self.name:
            return self
        told = {**failure, "message": str(failure["message"])[-MESSAGE_LIMIT:]}
        return dataclasses.replace(self, attempts=[*self.attempts[:-1], {**self.attempts[-1], "failure": told}])

    @property
    def layout(self) -> str:
        """The numbers of programs that share the trainers' and pservers' state."""
        ports = f"{self.ports_num}+{self.ports_num_sparse} ports"
        return f"{self.gradient_num} trainers and {self.pserver_num} pservers of {ports}"

    @property
    def indexes(self) -> list[int]:
        """The completion index of each pod, by trainer id. Raises: KeyError, in a record that has none."""
        return [int(pod["index"]) for pod in self.pods]

    @property
    def first_uid(self) -> str:
        """The UID of trainer 0's pod, "" where the record does not tell it."""
        return str(self.pods[0].get("uid", "")) if self.pods else ""

    def describe_absent(self) -> str:
        """Says what this attempt does without, "" for one with all pods of the Job."""
        if not self.absent:
            return ""
        pservers = f", {self.pserver_num} of {self.job_pservers} pservers" * (self.pserver_num < self.job_pservers)
        missing = [
            f"pod {pod['index']} ({pod['place'] or 'it has never been there'}) since {to_clock(pod['since'])}"
            for pod in self.absent
        ]
        return f"{self.gradient_num} of {self.job_trainers} trainers{pservers}; without {list_some(missing, ', ')}"

    @property
    def roles(self) -> PodLayout:
        """Which pods of this attempt run a trainer, and which a pserver."""
        trainers = self.gradient_num or MOST_TRAINERS  # of an old record
        is_apart = len(self.pods) > max(trainers, self.pserver_num)
        return PodLayout(trainers, self.pserver_num, is_apart)

    @property
    def ids(self) -> IdMap:
        """The set of pods of this attempt, as trainer 0 found it."""
        places = {str(pod.get("ip")): str(pod.get("place")) for pod in self.pods}
        ids = ((ip, number) for number, ip in enumerate(places))
        return IdMap(ids, pod_uids=self.pod_uids, job_uid=self.job_uid, places=places)


def is_later(found: JobRecord, known: JobRecord) -> bool:
    """Tells whether a record is of an attempt after a known one.

    The numbers begin again where the record was lost together with launcher 0. Such an attempt has another set of
    pods, and a name that the known record's history lacks; an old job.json that a network file system shows again has
    a name of that history.
    """
    names = {known.name, *(attempt["name"] for attempt in known.attempts)}
    return found.attempt > known.attempt or (found.pod_uids != known.pod_uids and found.name not in names)


@functools.lru_cache(maxsize=1)  # a launcher reads job.json far more often than it changes, and it names every pod
def parse_record(content: bytes) -> JobRecord | None:
    """Returns the record that a file holds, None when it is none."""
    try:
        found = parse_json(content)
        record = JobRecord(**found) if is_shallow(found) else None
    except (ValueError, TypeError):
        return None
    kinds = {"str": str, "int": int, "bool": bool, "list[str]": list, "list[JsonObject]": list}
    if not record or not all(
        isinstance(getattr(record, one.name), kinds[str(one.type)]) for one in dataclasses.fields(record)
    ):
        return None
    are_objects = all(isinstance(one, dict) for one in (*record.pods, *record.attempts, *record.absent))
    texts = [*record.pod_uids, *(one.get(name) for one in record.attempts if are_objects for name in ATTEMPT)]
    if not are_objects or not all(isinstance(text, str) for text in texts) or not all(map(is_absence, record.absent)):
        return None
    return record if not record.absent or all(is_index(pod.get("index")) for pod in record.pods) else None


def is_index(value: object) -> bool:
    """Tells whether a JSON value can be a completion index."""
    return type(value) is int and 0 <= value < 2 * MOST_TRAINERS


def is_absence(value: JsonObject) -> bool:
    """Tells whether an object says which pod is absent, as JobRecord.absent has it."""
    return is_index(value.get("index")) and is_time(value.get("since")) and isinstance(value.get("place"), str)


def to_clock(seconds: float) -> str:
    """Returns a time, in seconds since the epoch, as the logs have it."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def pass_name(number: int) -> str:
    """Returns the name of a pass's directory."""
    return f"pass-{number:05d}"


def is_error(value: object) -> bool:
    """Tells whether a JSON value is what a pod says of its end (failures.make_error)."""
    if not isinstance(value, dict) or not is_time(value.get("time")):
        return False
    texts = ("attempt", "host", "program", "message")
    return all(isinstance(value.get(name), str) for name in texts) and all(
        isinstance(value.get(name), int) for name in ("trainer_id", "exit_code")
    )


def failure_in(attempt: JsonObject) -> JsonObject | None:
    """Returns what failed first in an attempt of JobRecord.attempts, None where that is not written down."""
    return attempt["failure"] if is_error(attempt.get("failure")) else None


class AttemptState(enum.Enum):
    """Where an attempt stands, as far as the volume tells. The values say what its launchers do in that state."""

    FORMING = "the record names the pods; each stages its shard and starts its pserver, and no trainer has begun"
    RUNNING = "the trainers train; each launcher watches both programs of its pod"
    RESTARTING = "a pod has ended it; the launchers stop their programs, keep their pods and form the next attempt"
    FAILED = "a pod has ended it for a reason that no retry mends, and ends with that exit status"
    FINISHED = "all passes are trained, and nothing is left to do"
    GIVEN_UP = "more than RESTARTS attempts in a row left nothing new; no launcher begins another one"

    @property
    def is_broken(self) -> bool:
        """A pod has ended the attempt before its passes were trained."""
        return self in (AttemptState.RESTARTING, AttemptState.FAILED)


def state_of(record: JobRecord, failure: JsonObject | None, progress: JsonObject) -> AttemptState:
    """Returns the state of the newest attempt.

    Args: failure: the first failure that its pods have reported. progress: what trainer 0 said last, of any attempt.
    """
    if record.finished:
        return AttemptState.FINISHED
    if record.given_up:
        return AttemptState.GIVEN_UP
    if failure:
        is_final = failure.get("exit_code") in NEVER_RETRY and not failure.get("signal")
        return AttemptState.FAILED if is_final else AttemptState.RESTARTING
    return AttemptState.RUNNING if progress.get("attempt") == record.name else AttemptState.FORMING


@dataclasses.dataclass
class AttemptHistory:
    """What one launcher remembers of its attempts. Only the main thread uses it."""

    record: JobRecord | None = None  # of the last attempt that it took part in
    is_dissolved: bool = False  # that attempt never began to train, because the set of pods changed
    status: int = 0  # exit status that this pod's part of that attempt ended with
    staged: Portion | None = None  # what is in ./data
    lost: set[str] = dataclasses.field(default_factory=set)  # uids of the failed pods that were named
    said: dict[int, set[str]] = dataclasses.field(
        default_factory=dict
    )  # by number of the attempt: what was said of the next one

    @property
    def attempt(self) -> int:
        """The number of that attempt."""
        return self.record.attempt if self.record else 0

    def is_news(self, record: JobRecord) -> bool:
        """Tells whether a record is of an attempt after the last one that this launcher took part in."""
        return self.record is None or is_later(record, self.record)

    def note(self, result: AttemptResult) -> None:
        """Remembers how the last attempt ended in this pod."""
        self.status, self.is_dissolved = result.status, result.is_dissolved

    def say_once(self, message: str) -> None:
        """Says a decision on the next attempt once, even if a full volume makes the launcher decide again and again."""
        said = self.said.setdefault(self.attempt, set())
        if message not in said:
            say(message)
        said.add(message)

    def name_lost(self, pods: Iterable[PodStatus]) -> None:
        """Says once of each failed pod what its status tells: a pod may end without a report of its own."""
        for pod in pods:
            if pod.phase == "Failed" and pod.uid not in self.lost:
                self.lost.add(pod.uid)
                say(f"this Job has lost {pod}")


@dataclasses.dataclass(frozen=True)
class Rendezvous:
    """A full set of pods that agree on an attempt. It has no ids when this Job has finished its passes or given up."""

    ids: IdMap
    record: JobRecord | None = None


@dataclasses.dataclass
class AttemptResult:
    """How the programs of this pod ended: the pod's exit status, and which program was first to fail, with what."""

    status: int
    program: str = ""
    message: str = ""
    signal: str = (
        ""  # that killed the program; the program is then the cause, although its status is that of a lost peer
    )
    is_dissolved: bool = False  # the set of pods changed before the training began; nothing has failed

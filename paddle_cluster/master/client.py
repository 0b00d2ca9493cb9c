"""The trainer's client of the master: it finds the leader, follows a change of leader, and repeats requests.

    with MasterClient(book, "job", member, secret=secret) as master:
        master.set_dataset(files)
        for task in master.tasks(pass_number):
            train(task.files)
            master.finish(task, samples)

Requests can safely be repeated. The master identifies a task by its id and epoch, and a request for a task by the
number that the trainer has given to the request. If a connection or a leader fails before the answer arrives, the
client therefore repeats the request until its deadline.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.messages.client import ControlClient
from paddle_base.messages.client_core import Caller, ClientCore, ClientPace
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.errors import ClosedError, NoAnswerError, RequestRefusedError
from paddle_base.messages.keys import derive_keys
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, DataError, PaddleError, PeerUnreachableError, UsageError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_cluster.master.following import FollowedLeader
from paddle_cluster.master.protocol import MASTER, TRAINER
from paddle_cluster.master.store.interface import MasterStore
from paddle_cluster.master.tasks.dataset import digest_of, split_names
from paddle_cluster.master.tasks.dispatch import JOB_DONE, JOB_FAILED, PASS_END, TASK
from paddle_cluster.master.tasks.events import FAILED, FINISHED, RETURNED
from paddle_cluster.master.tasks.records import TaskView

COMPARE = "see the master's log; trainer and master need the same job name, store and PADDLE_SECRET"

BEAT_S, SILENCE_S = 1.0, 3.0
LOOK_S = 1.0  # maximum seconds for one read of the leader's address
POLL_S = 30.0  # maximum seconds that the master waits for a task before it answers; the client then repeats the request
CHECK_S = 0.5  # seconds between two checks whether the leader has permanently refused this trainer
AGAIN_S = 0.2  # seconds before a temporarily refused request is repeated
# codes of temporary refusals, which end when this trainer joins again, or when another leader takes over
_FOR_NOW = ("member", "join", "failed", "repeated")


@dataclass(frozen=True)
class TaskGrant:
    """A task of this trainer. `limit`: seconds after which the master assigns the task to another trainer."""

    number: int
    epoch: int
    pass_number: int
    files: tuple[str, ...]
    limit: float


@dataclass(frozen=True)
class PassOver:
    """An answer that says that a pass has ended.

    next_pass: number of the present pass; after the last pass, the number of passes of the job.  is_last: whether the
    job has ended, too.
    discarded: text about the discarded tasks of the job, at the end of the job; "": no task was discarded.

    After this answer a trainer first calls `request_save` for the ended pass, because the job ends only when the model
    of its last pass is saved. After `request_save`, the trainer requests a task of `next_pass`.
    """

    next_pass: int
    is_last: bool
    discarded: str = ""


class MasterClient:
    """The client of one trainer. Only one thread at a time may make requests.

    Args: book: provides the leader's address.  member: identity of this trainer: the UID of its pod, and its
        incarnation, which differs with each start.  config: digest of its config, or "".  patience: maximum seconds
        without a master before a request fails. The time of waiting for a task is not included.
    Attributes: look: function that is called about twice a second, by the thread that waits for an answer; an error of
        `look` ends the wait, and cancels the request.
    """

    def __init__(
        self,
        book: MasterStore,
        job: str,
        member: MemberId,
        *,
        secret: str = "",
        config: str = "",
        patience: float = 300.0,
        role: str = TRAINER,
    ) -> None:
        self._book, self._job, self.member = book, job, member
        self._keys, self._patience = derive_keys(secret), patience
        self._hello, self._numbers = {"role": role, "config": config}, itertools.count(1)
        self._next: Mapping[str, Any] | None = None  # the next task, if it came with the answer to a report
        self.look: Callable[[], None] = lambda: None
        self._leader = FollowedLeader()
        self._finder = ServiceThread(self._follow, "master-finder")
        self._finder.start()

    # ----- Information for a trainer

    @property
    def number(self) -> int:
        """The number of this trainer: 0, 1, 2, ... in order of joining; constant until this process ends.

        Reading the number waits until a master has accepted this trainer.
        Raises: PeerUnreachableError: no master has accepted this trainer in time.  ConfigError: this trainer does not
            belong to the job.
        """
        until = time.monotonic() + self._patience
        while (number := self._leader.wait_number(CHECK_S)) is None:
            self._check()
            if time.monotonic() >= until:
                raise PeerUnreachableError(
                    f"the master of job '{self._job}' has not accepted this trainer: {self._leader.trouble}"
                )
        return number

    @property
    def is_joined(self) -> bool:
        """Whether a master has accepted this trainer and is still connected."""
        return self._leader.is_joined

    @property
    def num_passes(self) -> int:
        """The number of passes of the job; 0 until a master has accepted this trainer."""
        return self._leader.num_passes

    @property
    def view(self) -> TaskView:
        """The newest view: its epoch, and the numbers of the trainers with a task. Before the first, the epoch is 0."""
        return self._leader.view

    def on_view(self, callback: Callable[[TaskView], None]) -> None:
        """Call `callback` with each later view, in the thread of the connection; the callback must not block."""
        self._leader.on_view = callback

    # ----- Requests of a trainer

    def set_dataset(self, files: Sequence[str]) -> int:
        """Set the job's file list, or check that the job already has the same list; return the present pass.

        Raises: UsageError: the list is empty.  ConfigError: the job has another list or config.
            PeerUnreachableError: no master has answered in time.
        """
        if not files:
            raise UsageError("the file list is empty; name at least one file")
        digest = digest_of(files)
        until = time.monotonic() + self._patience
        offer = {"digest": digest, "config": self._hello["config"], "files": len(files)}
        while True:
            answer = self._ask("offer_dataset", offer, until)
            try:
                for part in split_names(files[answer["next"] :]) if answer["state"] == "send" else ():
                    first = answer["next"]
                    answer = self._ask("dataset_part", {"digest": digest, "first": first, "names": list(part)}, until)
            except RequestRefusedError as exc:
                if exc.code != "offer":
                    raise
                continue  # the leader or the sending trainer has changed: offer the list again
            if answer["state"] == "known":
                return int(answer["pass"])

    def get_task(self, pass_number: int) -> TaskGrant | PassOver:
        """Return a task of a pass, or `PassOver`; wait while other trainers may still return tasks.

        After `finish` with `wants_next`, return the task in the answer to `finish`, if the answer contains a task.
        Raises: DataError: the job has failed.  PeerUnreachableError: no master has answered in time.
        """
        answer, self._next = self._next, None
        number = next(self._numbers)
        while True:
            if answer is None:
                until = time.monotonic() + POLL_S + self._patience
                question = {"request": number, "patience": POLL_S, "pass": pass_number}
                answer = self._ask("get_task", question, until)
            if (got := _read_answer(answer)) is not None:
                return got
            answer = None

    def tasks(self, pass_number: int) -> Iterator[TaskGrant]:
        """Yield tasks until the pass is over; the caller must report each task before it takes the next task."""
        while isinstance(got := self.get_task(pass_number), TaskGrant):
            yield got

    def finish(self, task: TaskGrant, samples: int, *, wants_next: bool = False) -> bool:
        """Report that a task's records are trained, and that every parameter server has acknowledged the training.

        Args: wants_next: also request the next task of the pass. The next call must then be `get_task` of that pass or
            `leave`.
        Returns: False if the task was assigned to another trainer meanwhile; its records are then trained twice.
        """
        more = {"request": next(self._numbers), "pass": task.pass_number} if wants_next else None
        return self._report(task, FINISHED, samples, "", next=more)

    def fail(self, task: TaskGrant, reason: str, samples: int = 0) -> bool:
        """Report that a task's records cannot be trained; `samples` records were trained before the failure."""
        return self._report(task, FAILED, samples, reason)

    def give_back(self, task: TaskGrant, samples: int = 0, patience: float | None = None) -> bool:
        """Report that this trainer does not continue with a task; it has trained `samples` of the task's samples.

        Args: patience: maximum seconds without a master; by default the patience of this client.
        """
        return self._report(task, RETURNED, samples, "the trainer does not continue this task", patience)

    def request_save(self, pass_number: int, block: float) -> str:
        """Ask whether this trainer must save the model of a pass that has ended.

        Returns: GRANTED: yes; no other trainer may save for `block` seconds, and `report_saved` must follow, even if no
            model was written.  BUSY: another trainer is saving.  SAVED: the pass has a model, or a later pass ended.
        """
        until = time.monotonic() + self._patience
        return str(self._ask("request_save", {"block": block, "pass": pass_number}, until)["state"])

    def report_saved(self, pass_number: int) -> bool:
        """Report that the model of a pass is saved; return False if the report comes after the time limit."""
        answer = self._ask("report_saved", {"pass": pass_number}, time.monotonic() + self._patience)
        if not answer["accepted"]:
            glog.warning(f"the master refuses the report that pass {pass_number} is saved: {answer['reason']}")
        return bool(answer["accepted"])

    def status(self) -> Mapping[str, Any]:
        """Return the master's state, with the fields of the answer to "status" in `paddle_cluster.master.protocol`."""
        return self._ask("status", {}, time.monotonic() + self._patience)

    def leave(self, patience: float = 5.0) -> None:
        """Return this trainer's tasks to the master, which does not count a failure, and make no more requests.

        If the master does not answer within `patience` seconds, it detects later that this trainer has left.
        """
        if not self._leader.is_over:
            with contextlib.suppress(PaddleError, RequestRefusedError):
                self._ask("depart", {}, time.monotonic() + patience)
        self._leader.end()

    def close(self) -> None:
        """Close the connection; if `leave` was not called, the master waits until this trainer's lease has expired."""
        self._leader.end()
        self._finder.join()

    def __enter__(self) -> MasterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -----

    def _report(
        self, task: TaskGrant, outcome: str, samples: int, reason: str, patience: float | None = None, **more: Any
    ) -> bool:
        body: dict[str, Any] = {"id": task.number, "epoch": task.epoch, "pass": task.pass_number}
        body |= {"outcome": outcome, "samples": samples, "reason": reason[:1000], "next": None, **more}
        answer = self._ask("report_task", body, time.monotonic() + (self._patience if patience is None else patience))
        self._next = answer["next"]
        if not answer["accepted"]:
            glog.warning(f"the master refuses the report that task {task.number} is {outcome}: {answer['reason']}")
        return bool(answer["accepted"])

    def _ask(self, kind: str, body: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        """Repeat a request until there is an answer.

        Raises: PeerUnreachableError: no answer comes in time. ConfigError: this trainer does not belong to the job.
            RequestRefusedError: the master refuses the request, with a code from `paddle_cluster.master.tasks` or
            `paddle_cluster.master.uploads`.
        """
        trouble = ""
        while (left := until - time.monotonic()) > 0:
            try:
                return self._ask_once(self._leader.wait(min(left, CHECK_S)), kind, body, until)
            except (NoAnswerError, ClosedError) as exc:
                trouble = str(exc)
            except RequestRefusedError as exc:
                if exc.code in ("dataset", "empty"):
                    raise ConfigError(f"the master refuses {kind}: {exc}") from exc
                if exc.code not in _FOR_NOW:
                    raise
                trouble = str(exc)
            self._check()
            self._leader.pause(min(AGAIN_S, left))
        why = f"{trouble or self._leader.trouble}; {COMPARE}"
        raise PeerUnreachableError(f"the master of job '{self._job}' has not answered {kind} in time: {why}")

    def _ask_once(self, caller: Caller, kind: str, body: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        answer = caller.submit(kind, body, max(0.0, until - time.monotonic()))
        while True:
            try:
                return answer.result(CHECK_S)
            except concurrent.futures.TimeoutError:
                self._check()

    def _check(self) -> None:
        self._leader.check()
        self.look()

    def _follow(self) -> None:
        """Keep a connection to the present leader, until closed."""
        known = ""
        while not self._leader.is_over:
            try:
                found = self._book.wait(known, LOOK_S)
            except PaddleError as exc:
                glog.warning(f"the address of the master cannot be read: {exc}")
                found = known
            if found and found != known:
                known = found
                self._connect(found)
            elif not known:
                self._leader.look_around(self._job, self._book)
            self._leader.rest()
        self._leader.replace(None)

    def _connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        pace = ClientPace(beat=BEAT_S, silence=SILENCE_S)
        name, leader = f"the master at {address}", self._leader
        core = ClientCore(MASTER, self._job, self.member, name, lambda: {**self._hello, "number": leader.number}, pace)
        caller = Caller(core, leader, glog.warning)
        leader.replace(ControlClient(host, int(port), caller, self._keys))


def _read_answer(answer: Mapping[str, Any]) -> TaskGrant | PassOver | None:
    """Return the content of an answer to "get_task", or None if the request must be repeated.

    Raises: DataError: the job has failed.
    """
    if answer["state"] == TASK:
        task = answer["task"]
        return TaskGrant(task["id"], task["epoch"], answer["pass"], tuple(task["files"]), task["limit"])
    if answer["state"] == JOB_FAILED:
        raise DataError(f"the master has ended the job: {answer['reason']}")
    if answer["state"] in (PASS_END, JOB_DONE):
        return PassOver(answer["pass"], answer["state"] == JOB_DONE, answer["reason"])
    return None

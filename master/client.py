"""A trainer's side of the master: it finds the leader, follows it when it moves, and asks again what has no answer.

    with MasterClient(book, "job", member, secret=secret) as master:
        master.set_dataset(files)
        for task in master.tasks(pass_number):
            train(task.files)
            master.finish(task, samples)

Every question is safe to ask twice: the master knows a task by its id and epoch, and a question for a task by its
number. So a question whose answer is lost, with its connection or with its leader, is asked again until its deadline.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from master.following import FollowedLeader
from master.protocol import MASTER, TRAINER
from master.store.interface import AddressBook
from master.tasks.dataset import digest_of, split_names
from master.tasks.dispatch import JOB_DONE, JOB_FAILED, PASS_END, TASK
from master.tasks.events import FAILED, FINISHED, RETURNED
from master.tasks.records import TaskView
from messages.client import ControlClient
from messages.client_core import ClientCore, ClientPace
from messages.envelope import MemberId
from messages.errors import ClosedError, NoAnswerError, RequestRefusedError
from messages.keys import derive_keys
from runtime import glog
from runtime.errors import ConfigError, DataError, PaddleError, PeerUnreachableError, UsageError

COMPARE = "see its log; --job, --store_dir or --etcd_endpoints and PADDLE_SECRET must be those of the master"

BEAT_S, SILENCE_S = 1.0, 3.0
LOOK_S = 1.0  # that one look for an address takes at most
POLL_S = 30.0  # after which an open question for a task is asked anew, so that no deadline is near
CHECK_S = 0.5  # between two looks whether the leader has refused this trainer for good
AGAIN_S = 0.2  # before a question that was refused for now is asked again
_FOR_NOW = ("member", "join", "failed", "repeated")  # refusals that another join or leader mends


@dataclass(frozen=True)
class TaskGrant:
    """A task that this trainer has. `limit`: seconds after which the master gives it to another one."""

    number: int
    epoch: int
    pass_number: int
    files: tuple[str, ...]
    limit: float


@dataclass(frozen=True)
class PassOver:
    """The pass has ended; `next_pass` is the present one. Also the end of the job, with `is_last`.

    `discarded` says at the end of the job which tasks were discarded, "" if none was.

    Before it asks for a task of `next_pass`, a trainer asks whether it is to save the model of the pass before that:
    the job ends when the model of its last pass is saved. Until then `next_pass` is the number of passes.
    """

    next_pass: int
    is_last: bool
    discarded: str = ""


class MasterClient:
    """One trainer. Its questions may be asked by one thread at a time.

    Args: book: where the leader's address is found.  member: this trainer: the UID of its pod, and its incarnation,
        which grows with each start.  config: digest of its config, or empty.  patience: seconds that the
        master may be away before a question ends with an error. The wait for a task is not counted.
    Attributes: look: is called several times a second by the thread that waits for an answer; what it raises ends the
        wait, and the question counts as not asked.
    """

    def __init__(
        self,
        book: AddressBook,
        job: str,
        member: MemberId,
        *,
        secret: str = "",
        config: str = "",
        patience: float = 300.0,
        role: str = TRAINER,
    ) -> None:
        self._book, self._job, self.member = book, job, member
        self._keys = derive_keys(secret)
        self._hello = {"role": role, "config": config}
        self._patience = patience
        self._numbers = itertools.count(1)
        self._next: Mapping[str, Any] | None = None  # the answer to the question for a task that came with a report
        self.look: Callable[[], None] = lambda: None
        self._leader = FollowedLeader()
        self._finder = threading.Thread(target=self._follow, name="master-finder", daemon=True)
        self._finder.start()

    # ----- What a trainer is told

    @property
    def number(self) -> int:
        """The number of this trainer: 0, 1, 2, ... in order of joining, the same until this process ends.

        It waits until a master has let this trainer in.
        Raises: PeerUnreachableError: none has in time.  ConfigError: this trainer is none of the job's.
        """
        until = time.monotonic() + self._patience
        while (number := self._leader.wait_number(CHECK_S)) is None:
            self._check()
            if time.monotonic() >= until:
                raise PeerUnreachableError(
                    f"the master of job '{self._job}' has not let this trainer in: {self._leader.trouble}"
                )
        return number

    @property
    def is_joined(self) -> bool:
        """Whether a master has let this trainer in, and has not gone since."""
        return self._leader.is_joined

    @property
    def num_passes(self) -> int:
        """The passes of the job, as the leader has said that let this trainer in last; 0 before one has."""
        return self._leader.num_passes

    @property
    def view(self) -> TaskView:
        """The numbers of the trainers that have a task, as the master has said last; epoch 0 before it has."""
        return self._leader.view

    def on_view(self, callback: Callable[[TaskView], None]) -> None:
        """Let `callback` hear of each later view; it runs in the thread of the connection, and may not block."""
        self._leader.on_view = callback

    # ----- What a trainer asks

    def set_dataset(self, files: Sequence[str]) -> int:
        """Give the job's file list, or check that it is this one; return the present pass.

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
                continue  # another leader, or another sender
            if answer["state"] == "known":
                return int(answer["pass"])

    def get_task(self, pass_number: int) -> TaskGrant | PassOver:
        """Return a task of a pass, or that the pass is over; wait as long as others may still give tasks back.

        After `finish` with `wants_next` it is what came with its answer, if there was a task or the pass is over.
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
        """Yield tasks until the pass is over; each is to be reported before the next one is taken."""
        while isinstance(got := self.get_task(pass_number), TaskGrant):
            yield got

    def finish(self, task: TaskGrant, samples: int, *, wants_next: bool = False) -> bool:
        """Say that a task's records are trained, and that every server has acknowledged that.

        Args: wants_next: ask for the next task of the pass, too. The next call is `get_task` of that pass, or `leave`.
        Returns: False if the task was given to another trainer meanwhile: what was trained of it is a repetition.
        """
        more = {"request": next(self._numbers), "pass": task.pass_number} if wants_next else None
        return self._report(task, FINISHED, samples, "", next=more)

    def fail(self, task: TaskGrant, reason: str, samples: int = 0) -> bool:
        """Say that a task's records cannot be trained; `samples` of them were."""
        return self._report(task, FAILED, samples, reason)

    def give_back(self, task: TaskGrant, samples: int = 0, patience: float | None = None) -> bool:
        """Say that this trainer does not go on with a task; `samples` of it were trained.

        Args: patience: seconds that the master may be away; by default those of this client.
        """
        return self._report(task, RETURNED, samples, "it does not go on with it", patience)

    def request_save(self, pass_number: int, block: float) -> str:
        """Ask whether this trainer is the one that saves the model of a pass that has ended.

        Returns: GRANTED: it is, no other one is for `block` seconds, and `report_saved` is to follow, whether it has
            written anything or not.  BUSY: another trainer is at it.  SAVED: the model of this pass is saved, or a
            later pass has ended.
        """
        question = {"block": block, "pass": pass_number}
        return str(self._ask("request_save", question, time.monotonic() + self._patience)["state"])

    def report_saved(self, pass_number: int) -> bool:
        """Say that the model of a pass is saved; return False if this trainer's time for that was over."""
        answer = self._ask("report_saved", {"pass": pass_number}, time.monotonic() + self._patience)
        if not answer["accepted"]:
            glog.warning(f"the master refuses that pass {pass_number} is saved: {answer['reason']}")
        return bool(answer["accepted"])

    def status(self) -> Mapping[str, Any]:
        """Return what the master knows: pass, tasks, members, accounts of passes; see `protocol`."""
        return self._ask("status", {}, time.monotonic() + self._patience)

    def leave(self, patience: float = 5.0) -> None:
        """Leave the job; what this trainer still has is given to others at once, and is no failure.

        A master that does not answer within `patience` seconds notices by itself.
        """
        with contextlib.suppress(PaddleError, RequestRefusedError):
            self._ask("depart", {}, time.monotonic() + patience)

    def close(self) -> None:
        """Let go of the connection; without `leave` before it, the lease of this trainer runs out."""
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
            glog.warning(f"the master refuses that task {task.number} is {outcome}: {answer['reason']}")
        return bool(answer["accepted"])

    def _ask(self, kind: str, body: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        """Ask until there is an answer.

        Raises: PeerUnreachableError: there is none in time.  ConfigError: this trainer is none of the job's.
            RequestRefusedError: the master refuses, with a code of `rules` or `uploads`.
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

    def _ask_once(self, client: ControlClient, kind: str, body: Mapping[str, Any], until: float) -> Mapping[str, Any]:
        answer = client.submit(kind, body, max(0.0, until - time.monotonic()))
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
        self._leader.replace(None, None)

    def _connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        pace = ClientPace(beat=BEAT_S, silence=SILENCE_S)
        name = f"the master at {address}"
        core = ClientCore(MASTER, self._job, self.member, name, lambda: self._hello, pace)
        client = ControlClient(host, int(port), core, self._leader, keys=self._keys, note=glog.warning)
        self._leader.replace(client, core)


def _read_answer(answer: Mapping[str, Any]) -> TaskGrant | PassOver | None:
    """Return what an answer to "get_task" gives; None where the question is to be asked again.

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

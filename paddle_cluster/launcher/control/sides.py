"""The two sides of the control connection: the host of the rendezvous, and a member of the rendezvous.

The host is trainer 0's launcher, which announces attempts and determines the first failure of an attempt.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Mapping
from typing import Any

from paddle_base.messages.client_core import Caller
from paddle_base.messages.envelope import MemberId
from paddle_base.messages.server_core import Dispatcher, MemberAsked, ServerCore
from paddle_cluster.launcher.attempts import JobRecord
from paddle_cluster.launcher.cluster.pods import IdMap, in_id_order
from paddle_cluster.launcher.cluster.quorum import WITHOUT_LAUNCHER
from paddle_cluster.launcher.control.failure_detector import FailureDetector, LauncherPlace
from paddle_cluster.launcher.control.informer import AttemptInformer
from paddle_cluster.launcher.control.protocol import RENDEZVOUS
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject, say

# Minimum value of two limits, which are the numbers of connections of members and of peers that are not authenticated
# yet. In a large job both limits are higher, because all launchers connect at the same time.
LEAST_PEERS = 128
ANSWER_S = 10.0  # seconds for trainer 0's launcher to acknowledge a request
CAUSE_S = 2.0  # seconds after the first report of a lost peer, within which the failed pod must report the cause


class RendezvousMember:
    """A launcher that does not serve.

    Args: caller: the connection to trainer 0's launcher; None: there is none yet, or the job has one pod.
    Attributes: has_peers: whether other launchers can tell how an attempt has ended.
    """

    def __init__(self, caller: Caller | None = None) -> None:
        self._caller, self.has_peers = caller, caller is not None

    @property
    def trouble(self) -> str:
        """Why trainer 0's launcher is not reached; "" if it is reached, or if this launcher does not connect to it."""
        return self._caller.trouble if self._caller else ""

    @property
    def is_closed(self) -> bool:
        """Whether this launcher never connects again, because another process has its place."""
        return bool(self._caller and self._caller.is_closed)

    def why_not_heard(self, ids: IdMap) -> str:
        """Describe which launchers of a full set of pods are not connected, or return "" if all are connected.

        A launcher that does not serve knows only its own connection.
        """
        return f"{self._caller.core.name}: {self.trouble}" if self._caller and self.trouble else ""

    def find_silent(self, uids: Mapping[str, str]) -> list[str]:
        """Return the addresses of pods whose launchers are not connected to this launcher.

        Args: uids: {address of a pod: its UID}.
        """
        return [*uids]

    def begin(self, record: JobRecord) -> None:
        """In trainer 0's launcher, announce an attempt to the other launchers."""

    def finish(self, record: JobRecord) -> None:
        """In trainer 0's launcher, announce to the other launchers that all passes are trained."""

    def send(self, kind: str, body: Mapping[str, Any]) -> None:
        """Send trainer 0's launcher a request of protocol.RENDEZVOUS.

        A report that is lost is repeated in the next hello message.
        """
        if self._caller:
            self._caller.submit(kind, body, ANSWER_S)

    def judge_late(self, record: JobRecord) -> JsonObject | None:
        """Return the first failure of an earlier attempt, or None if no launcher has reported about that attempt."""
        return None


class RendezvousHost(RendezvousMember):
    """Trainer 0's launcher: the handlers of the server (paddle_base.messages.server_core.ServerHandlers).

    Thread safety: the server's thread calls `joined`, `asked` and `lost`; any thread may call the other methods.
    """

    def __init__(self, config: LauncherConfig, realm: str, member: MemberId, informer: AttemptInformer) -> None:
        self.most_peers = max(LEAST_PEERS, 2 * config.layout.pods)  # a pod and its replacement may both be connected
        super().__init__()
        self.has_peers = True
        core = ServerCore(RENDEZVOUS, realm, member, most_members=self.most_peers)
        self.dispatcher = Dispatcher(core, self, say)
        self._detector = FailureDetector(member.uid, LauncherPlace(config.pod_ip, config.pod_name))
        self._name_pod, self._informer = config.layout.name_pod, informer
        self._lock = threading.Lock()
        self._finished: tuple[str, set[int]] = ("", set())  # an attempt, and the trainers whose programs have finished

    def why_not_heard(self, ids: IdMap) -> str:
        """See `RendezvousMember`."""
        missing = self.find_silent(ids.uids)
        places = [
            f"{self._name_pod(ids[ip])} at {ip} ({ids.places.get(ip)})" for ip in in_id_order(ids) if ip in missing
        ]
        return f"waiting for the launchers of {', '.join(places)}; {WITHOUT_LAUNCHER}" if places else ""

    def find_silent(self, uids: Mapping[str, str]) -> list[str]:
        """See `RendezvousMember`."""
        with self._lock:
            return self._detector.missing(uids)

    def begin(self, record: JobRecord) -> None:
        """See `RendezvousMember`."""
        self._informer.begin(record)
        self._push("begin", {"record": to_text(record)})

    def finish(self, record: JobRecord) -> None:
        """See `RendezvousMember`."""
        self._informer.finish(record.name)
        self._push("done", {"attempt": record.name})

    def send(self, kind: str, body: Mapping[str, Any]) -> None:
        """Handle a request of any launcher, also of this launcher itself."""
        if kind == "report":
            self._take_report(body["error"])
        elif kind == "finished":
            self._count_finished(body["attempt"], body["trainer_id"])
        elif not ((record := self._informer.view.record) and record.is_program):
            self._informer.finish(body["attempt"])

    def _count_finished(self, attempt: str, trainer_id: int) -> None:
        """Record that a program of ENTRY has finished; the attempt has finished when all its programs have."""
        record = self._informer.view.record
        if record is None or record.name != attempt:
            return
        with self._lock:
            if self._finished[0] != attempt:
                self._finished = attempt, set()
            self._finished[1].add(trainer_id)
            is_last = len(self._finished[1]) >= record.gradient_num
        if is_last:
            self._informer.finish(attempt)

    def _take_report(self, error: JsonObject) -> None:
        """Record a pod's error, announce the end of the attempt, and announce its first failure when it is known."""
        record = self._informer.view.record
        with self._lock:
            is_new = self._detector.report(error)
            if not is_new or not record or error["attempt"] != record.name:
                return
            failure = self._detector.judge(record, is_late=False)
        view = self._informer.view
        is_first = record.name not in view.ends
        if is_first and not failure:
            timer = threading.Timer(CAUSE_S, self.judge_and_tell, [record])
            timer.daemon = True
            timer.start()
        if is_first or (failure and not view.failure_in(record)):
            self._tell_end(record, failure)

    def judge_and_tell(self, record: JobRecord) -> None:
        """Announce the first failure of an attempt when the time for further reports has passed."""
        view = self._informer.view
        if not view.failure_in(record) and (failure := self.judge_late(record)):
            self._tell_end(record, failure)

    def judge_late(self, record: JobRecord) -> JsonObject | None:
        """See `RendezvousMember`."""
        with self._lock:
            is_told = self._detector.has_reports(record.name)
            return self._detector.judge(record, is_late=True) if is_told else None

    # ----- Handlers that the server calls

    def joined(self, member: MemberId, hello: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add a launcher that has connected or reconnected; return the welcome message with the current state."""
        with self._lock:
            self._detector.join(member.uid, LauncherPlace(hello["ip"], hello["host"]))
        if hello["last"]:
            self._take_report(hello["last"])
        self._informer.wakeup.call()
        view = self._informer.view
        ended = [{"attempt": name, "failure": failure} for name, failure in view.ends.items()]
        return {"record": to_text(view.record) if view.record else None, "ended": ended, "done": view.done}

    def asked(self, asked: MemberAsked) -> Mapping[str, Any] | None:
        """Handle a launcher's request."""
        self.send(asked.kind, asked.body)
        return {}

    def lost(self, member: MemberId, reason: str) -> None:
        """Record that a launcher has disconnected."""
        with self._lock:
            self._detector.leave(member.uid)
        self._informer.wakeup.call()

    # -----

    def _tell_end(self, record: JobRecord, failure: JsonObject | None) -> None:
        self._informer.end(record.name, failure)
        self._push("ended", {"attempt": record.name, "failure": failure})

    def _push(self, kind: str, body: Mapping[str, Any]) -> None:
        self.dispatcher.call(ServerCore.push, kind, body)


def to_text(record: JobRecord) -> str:
    """Return a record as the JSON text that the messages contain."""
    return json.dumps(dataclasses.asdict(record))

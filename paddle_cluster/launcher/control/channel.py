"""The control connection of one launcher, which is a server in trainer 0's launcher and a client in the others."""

from __future__ import annotations

import dataclasses
import time
import typing
from collections.abc import Callable, Iterable

from paddle_base.messages.client_core import Caller, ClientCore, ClientPace
from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import ConfigError, LostPeerError
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.control.informer import AttemptInformer, describe_elsewhere, find_later
from paddle_cluster.launcher.control.protocol import LONGEST_MESSAGE, RENDEZVOUS
from paddle_cluster.launcher.control.sides import CAUSE_S, RendezvousHost, RendezvousMember
from paddle_cluster.launcher.failures import LOST_POD, make_error
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject, say

# the delays between connection attempts are short, because trainer 0's launcher may start at any moment
PACE = ClientPace(delays=lambda: exponential_backoff(0.05, 1.0))
POLL_S = 0.02  # seconds between two checks for new messages while a step of the launcher waits for them


class ControlChannel:
    """Messages between this launcher and the other launchers. In a job of one pod, the channel opens no port.

    Args: redact: removes tokens from a text that is sent to other pods.
    Attributes: side: a `RendezvousHost` in trainer 0's launcher, and a `RendezvousMember` in the others.
        informer: what trainer 0's launcher has announced.
    """

    def __init__(self, config: LauncherConfig, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._config = config
        self._started = time.time_ns()  # names this launcher; an earlier launcher of the pod has another name
        self.informer = AttemptInformer()
        self.side = RendezvousMember()
        self._transport: typing.Any = None  # a ControlServer or ControlClient
        self._served = ""  # the address of the server that this launcher is connected to
        self._admitted: frozenset[str] = frozenset()
        self._last: JsonObject | None = None  # the last error that this pod has reported

    # ----- Connecting

    def serve(self, uid: str, job_uid: str) -> None:
        """Start the server of trainer 0's launcher; do nothing if the server runs already.

        Raises: PortInUseError: another process uses the port.
        """
        if isinstance(self.side, RendezvousHost) or self._config.layout.pods == 1:
            return
        from paddle_cluster.launcher.control.transport import (
            open_server,  # imports zmq, which takes 40 ms and is not needed by --help
        )

        self.close()
        host = RendezvousHost(self._config, self._realm(job_uid), MemberId(uid, self._started), self.informer)
        self._transport = open_server(self._config, host, lambda ip: ip in self._admitted)
        self.side = host

    def join(self, server_ip: str, uid: str, job_uid: str) -> None:
        """Connect to trainer 0's launcher at an address; do nothing if this connection exists already.

        Raises: ConfigError: another process is the launcher of this pod.
        """
        if self._config.layout.pods == 1:
            return
        if self._served == server_ip:
            if self.side.is_closed:
                raise ConfigError(
                    f"trainer 0's launcher at {server_ip}:{self._config.control_port} hears another process as the "
                    f"launcher of pod {self._config.pod_name}: {self.side.trouble}"
                )
            return
        from paddle_cluster.launcher.control.transport import (
            open_client,  # imported here because the import of zmq takes 40 ms
        )

        self.close()
        name = f"trainer 0's launcher at {server_ip}:{self._config.control_port}"
        member = MemberId(uid, self._started)
        core = ClientCore(RENDEZVOUS, self._realm(job_uid), member, name, self._make_hello, PACE)
        caller = Caller(core, self.informer, say)
        self._transport = open_client(self._config, caller, server_ip)
        self.side, self._served = RendezvousMember(caller), server_ip

    def admit(self, addresses: Iterable[str]) -> None:
        """In a job without a secret, accept messages only from launchers at the given addresses."""
        self._admitted = frozenset(addresses)

    def close(self) -> None:
        """Disconnect after all queued messages are sent."""
        if self._transport:
            self._transport.close()
        self.side, self._transport, self._served = RendezvousMember(), None, ""
        self.informer.forget()

    # ----- The attempt

    @property
    def newest(self) -> JobRecord | None:
        """The newest attempt that trainer 0's launcher has announced."""
        return self.informer.view.record

    def is_done(self, record: JobRecord) -> bool:
        """Return whether all passes are trained, according to trainer 0's launcher or to the pservers' pods."""
        view = self.informer.view
        return view.done == record.name or bool(view.record and view.record.finished)

    def find_end(self, record: JobRecord, trainer_id: int) -> AttemptResult | None:
        """Return the result of an attempt that has ended in another pod, or None while the attempt continues."""
        view = self.informer.view
        if view.record and (later := find_later(view.record, record)):
            return later
        failure = view.failure_in(record)
        if record.name not in view.ends or (failure and failure["trainer_id"] == trainer_id):
            return None
        return AttemptResult(LostPeerError.exit_code, "launcher", describe_elsewhere(failure, record))

    def report(self, record: JobRecord, trainer_id: int, result: AttemptResult) -> AttemptResult:
        """Report this pod's result to the other launchers if it is the pod's first failure in the attempt.

        Returns: the result without tokens in its message.
        """
        result = dataclasses.replace(result, message=self._redact(result.message))
        is_told = bool(self._last and self._last["attempt"] == record.name)
        if result.is_dissolved or not result.status or is_told:
            return result
        error = make_error(record.name, trainer_id, self._config.pod_name, result)
        self._last = {**error, "message": result.message[-LONGEST_MESSAGE:]}
        self.side.send("report", {"error": self._last})
        return result

    def wait_for_first_failure(self, record: JobRecord, limit_s: float) -> JsonObject | None:
        """Return the first failure of an attempt that has ended, or None if it is unknown after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        heard_at = time.monotonic()
        while time.monotonic() < deadline and self.side.has_peers:
            failure = self.informer.view.failure_in(record)
            if failure:
                return failure
            if not (trouble := self.side.trouble):
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at >= CAUSE_S / 2:
                return describe_lost_server(record, trouble)
            time.sleep(POLL_S)
        return None

    def _make_hello(self) -> JsonObject:
        """Return the content of the hello message, which the client sends whenever it connects."""
        return {"ip": self._config.pod_ip, "host": self._config.pod_name, "last": self._last}

    def _realm(self, job_uid: str) -> str:
        return f"{self._config.job_namespace}/{self._config.job_name}/{job_uid}"[:200]


def describe_lost_server(record: JobRecord, trouble: str) -> JsonObject:
    """Return an error that names trainer 0's pod, whose launcher can no longer report the first failure."""
    place = str(record.pods[0].get("place")) if record.pods else "an unknown pod"
    message = f"the pod's launcher no longer answers: the pod was lost ({trouble})"
    return make_error(record.name, 0, place, AttemptResult(LostPeerError.exit_code, LOST_POD, message))

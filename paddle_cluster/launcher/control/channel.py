"""The control connection of one launcher, which is a server in trainer 0's launcher and a client in the others."""

from __future__ import annotations

import dataclasses
import time
import typing
from collections.abc import Callable, Iterable, Mapping

from paddle_base.messages.envelope import MemberId
from paddle_base.runtime.errors import ConfigError, LostPeerError
from paddle_cluster.launcher.attempts import AttemptResult, JobRecord
from paddle_cluster.launcher.cluster.pods import IdMap, in_id_order
from paddle_cluster.launcher.cluster.quorum import WITHOUT_LAUNCHER
from paddle_cluster.launcher.control.attempt_book import AttemptBook, LauncherPlace
from paddle_cluster.launcher.control.guest import RendezvousGuest
from paddle_cluster.launcher.control.host import CAUSE_S, RendezvousHost
from paddle_cluster.launcher.control.news import AttemptNews, find_end_elsewhere
from paddle_cluster.launcher.control.protocol import LONGEST_MESSAGE
from paddle_cluster.launcher.failures import LOST_POD, make_error
from paddle_cluster.launcher.settings import LauncherConfig
from paddle_cluster.launcher.text import JsonObject

POLL_S = 0.02  # seconds between two checks for new messages while a step of the launcher waits for them


class LauncherControl(typing.Protocol):
    """The methods of `ControlChannel` that other modules of the launcher call; tests have another implementation."""

    @property
    def wakeup(self) -> int: ...  # noqa: D102

    @property
    def newest(self) -> JobRecord | None: ...  # noqa: D102

    def serve(self, uid: str, job_uid: str) -> None: ...  # noqa: D102

    def join(self, server_ip: str, uid: str, job_uid: str) -> None: ...  # noqa: D102

    def admit(self, addresses: Iterable[str]) -> None: ...  # noqa: D102

    def why_not_heard(self, ids: IdMap) -> str: ...  # noqa: D102

    def find_silent(self, uids: Mapping[str, str]) -> list[str]: ...  # noqa: D102

    def begin(self, record: JobRecord) -> None: ...  # noqa: D102

    def finish(self, record: JobRecord) -> None: ...  # noqa: D102

    def tell_left(self, record: JobRecord) -> None: ...  # noqa: D102

    def is_done(self, record: JobRecord) -> bool: ...  # noqa: D102

    def find_end(self, record: JobRecord, trainer_id: int) -> AttemptResult | None: ...  # noqa: D102

    def acknowledge(self) -> bool | None: ...  # noqa: D102

    def report(self, record: JobRecord, trainer_id: int, result: AttemptResult) -> AttemptResult: ...  # noqa: D102

    def wait_for_first_failure(self, record: JobRecord, limit_s: float) -> JsonObject | None: ...  # noqa: D102

    def judge_late(self, record: JobRecord) -> JsonObject | None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102


class ControlChannel:
    """Messages between this launcher and the other launchers. In a job of one pod, the channel opens no port.

    Args: redact: removes tokens from a text that is sent to other pods.
    """

    def __init__(self, config: LauncherConfig, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._config = config
        self._started = time.time_ns()  # names this launcher; an earlier launcher of the pod has another name
        self._news = AttemptNews()
        self._host: RendezvousHost | None = None  # set if this launcher is the server
        self._guest: RendezvousGuest | None = None  # set if this launcher is a client
        self._transport: typing.Any = None  # a ControlServer or ControlClient
        self._served = ""  # the address of the server that this launcher is connected to
        self._admitted: frozenset[str] = frozenset()
        self._last: JsonObject | None = None  # the last error that this pod has reported

    # ----- Connecting

    def serve(self, uid: str, job_uid: str) -> None:
        """Start the server of trainer 0's launcher; do nothing if the server runs already.

        Raises: PortInUseError: another process uses the port.
        """
        if self._host or self._config.layout.pods == 1:
            return
        from paddle_cluster.launcher.control.transport import (
            open_server,  # imports zmq, which takes 40 ms and is not needed by --help
        )

        self.close()
        book = AttemptBook(uid, LauncherPlace(self._config.pod_ip, self._config.pod_name))
        host = RendezvousHost(book, self._news)
        member = MemberId(uid, self._started)
        server = open_server(self._config, self._realm(job_uid), member, host, lambda ip: ip in self._admitted)
        host.server = self._transport = server
        self._host = host

    def join(self, server_ip: str, uid: str, job_uid: str) -> None:
        """Connect to trainer 0's launcher at an address; do nothing if this connection exists already.

        Raises: ConfigError: another process is the launcher of this pod.
        """
        if self._config.layout.pods == 1:
            return
        if self._guest and self._served == server_ip:
            if self._guest.client and self._guest.client.is_closed:
                raise ConfigError(
                    f"trainer 0's launcher at {server_ip}:{self._config.control_port} hears another process as the "
                    f"launcher of pod {self._config.pod_name}: {self._guest.client.trouble}"
                )
            return
        from paddle_cluster.launcher.control.transport import (
            open_client,  # imported here because the import of zmq takes 40 ms
        )

        self.close()
        guest = RendezvousGuest(self._config.pod_ip, self._config.pod_name, self._news, self._last)
        client = open_client(self._config, self._realm(job_uid), MemberId(uid, self._started), guest, server_ip)
        guest.client = self._transport = client
        self._guest, self._served = guest, server_ip

    def admit(self, addresses: Iterable[str]) -> None:
        """In a job without a secret, accept messages only from launchers at the given addresses."""
        self._admitted = frozenset(addresses)

    def close(self) -> None:
        """Disconnect after all queued messages are sent."""
        if self._transport:
            self._transport.close()
        self._host = self._guest = self._transport = None
        self._served = ""
        self._news.forget()

    def find_silent(self, uids: Mapping[str, str]) -> list[str]:
        """Return the addresses of pods whose launchers are not connected to this launcher.

        Args: uids: {address of a pod: its UID}.
        """
        return self._host.missing(uids) if self._host else [*uids]

    def why_not_heard(self, ids: IdMap) -> str:
        """Describe which launchers of a full set of pods are not connected, or return "" if all are connected."""
        if self._guest and self._guest.client:
            trouble = self._guest.client.trouble
            return f"trainer 0's launcher at {self._served}:{self._config.control_port}: {trouble}" if trouble else ""
        missing = self._host.missing(ids.uids) if self._host else []
        name = self._config.layout.name_pod
        places = [f"{name(ids[ip])} at {ip} ({ids.places.get(ip)})" for ip in in_id_order(ids) if ip in missing]
        return f"waiting for the launchers of {', '.join(places)}; {WITHOUT_LAUNCHER}" if places else ""

    # ----- The attempt

    @property
    def wakeup(self) -> int:
        """A file descriptor that becomes readable when a message has arrived; `acknowledge` resets it."""
        return self._news.wakeup

    def acknowledge(self) -> bool | None:
        """Reset `wakeup`. Return True if a message had arrived, or None if no message had arrived."""
        return self._news.acknowledge()

    @property
    def newest(self) -> JobRecord | None:
        """The newest attempt that trainer 0's launcher has announced."""
        return self._news.view.record

    def begin(self, record: JobRecord) -> None:
        """In trainer 0's launcher, announce an attempt to the other launchers."""
        if self._host:
            self._host.begin(record)

    def finish(self, record: JobRecord) -> None:
        """In trainer 0's launcher, announce to the other launchers that all passes are trained."""
        if self._host:
            self._host.finish(record)

    def tell_left(self, record: JobRecord) -> None:
        """Notify trainer 0's launcher that all trainers have left the pserver of this pod."""
        if self._guest:
            self._guest.tell_left(record.name)

    def is_done(self, record: JobRecord) -> bool:
        """Return whether all passes are trained, according to trainer 0's launcher or to the pservers' pods."""
        view = self._news.view
        return view.done == record.name or bool(view.record and view.record.finished)

    def find_end(self, record: JobRecord, trainer_id: int) -> AttemptResult | None:
        """Return the result of an attempt that has ended in another pod, or None while the attempt continues."""
        return find_end_elsewhere(self._news.view, record, trainer_id)

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
        if self._host:
            self._host.report(self._last)
        elif self._guest:
            self._guest.report(self._last)
        return result

    def wait_for_first_failure(self, record: JobRecord, limit_s: float) -> JsonObject | None:
        """Return the first failure of an attempt that has ended, or None if it is unknown after `limit_s` seconds."""
        deadline = time.monotonic() + limit_s
        heard_at = time.monotonic()
        while time.monotonic() < deadline and (self._host or self._guest):
            failure = self._news.view.failure_in(record)
            if failure:
                return failure
            trouble = self._guest.client.trouble if self._guest and self._guest.client else ""
            if not trouble:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at >= CAUSE_S / 2:
                return describe_lost_server(record, trouble)
            time.sleep(POLL_S)
        return None

    def judge_late(self, record: JobRecord) -> JsonObject | None:
        """Return the first failure of an earlier attempt, or None if no report about the attempt has arrived."""
        return self._host.judge_late(record) if self._host else None

    def _realm(self, job_uid: str) -> str:
        return f"{self._config.job_namespace}/{self._config.job_name}/{job_uid}"[:200]


def describe_lost_server(record: JobRecord, trouble: str) -> JsonObject:
    """Return an error that names trainer 0's pod, whose launcher can no longer report the first failure."""
    place = str(record.pods[0].get("place")) if record.pods else "an unknown pod"
    message = f"the pod's launcher no longer answers: the pod was lost ({trouble})"
    return make_error(record.name, 0, place, AttemptResult(LostPeerError.exit_code, LOST_POD, message))

"""The command `paddle pserver --probe` waits until every service answers as a member of this job and attempt.

The probe imports neither numpy nor the server's modules, because a launcher waits for the probe.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from paddle_base.runtime import glog
from paddle_base.runtime.environment import JobEnvironment
from paddle_base.runtime.errors import PeerUnreachableError
from pserver.client.connection import ANOTHER_PROGRAM, Poller, ServerConnection
from pserver.wire import protocol
from pserver.wire.authentication import PROBE, TOKEN_BYTES
from pserver.wire.connection import Frames
from pserver.wire.protocol import Message, Op

RETRY_INTERVAL = 0.2  # seconds between two hellos to a server that gave a wrong answer
CONNECT_TIMEOUT = 1.0  # maximum seconds to open a TCP connection that only tests why a server does not answer
_NEVER = float("inf")


@dataclass
class ProbedService:
    """One probed service."""

    connection: ServerConnection
    fault: str | None = None  # description of the server's last invalid answer
    due: float = 0.0  # time of the next hello
    is_ready: bool = False

    def __str__(self) -> str:
        return self.connection.peer


def probe(services: Sequence[tuple[str, int]], job: JobEnvironment, timeout: float) -> None:
    """Return when every service has answered a hello with the right version, job, attempt and secret.

    Raises: PeerUnreachableError: the timeout has passed; the message has a line for each server without a right answer.
    """
    targets = [_connect(host, port, job.secret) for host, port in services]
    try:
        if not _ask_all(targets, job, time.monotonic() + timeout):
            late = [target for target in targets if not target.is_ready]
            raise PeerUnreachableError(
                "\n".join(
                    [f"{len(late)} of {len(targets)} pservers are not ready after {timeout:g} s:"]
                    + [f"{target} {target.fault or _explain_silence(target)}" for target in late]
                )
            )
    finally:
        for target in targets:
            target.connection.close()


def _connect(host: str, port: int, secret: str) -> ProbedService:
    return ProbedService(ServerConnection(host, port, secrets.token_bytes(TOKEN_BYTES) + PROBE, secret))


def _ask_all(targets: Sequence[ProbedService], job: JobEnvironment, deadline: float) -> bool:
    of_connection = {target.connection: target for target in targets}
    while True:
        now = time.monotonic()
        waiting = [target for target in targets if not target.is_ready]
        if not waiting or now >= deadline:
            return not waiting
        for target in waiting:
            # a hello is lost if its connection closes before the answer arrives
            is_lost = target.due == _NEVER and target.connection.closed is not None and not target.connection.waiting
            if is_lost or now >= target.due:
                _ask(target, job)
        wake = min([deadline, *(target.due for target in waiting)])
        for connection, messages in Poller([target.connection for target in waiting]).wait(max(0.0, wake - now)):
            for frames in messages:
                _take(of_connection[connection], frames, job)
        for target in waiting:
            if target.connection.fault:
                target.fault = f"is no server of this job: {target.connection.fault}"


def _ask(target: ProbedService, job: JobEnvironment) -> None:
    target.due = _NEVER  # the next hello is sent only after the server has answered or the connection has broken
    note = {"job": job.job, "attempt": job.attempt}
    target.connection.send(Message(Op.HELLO, protocol.session_of(job.job, job.attempt), -1, 1, note=note))


def _take(target: ProbedService, frames: Frames, job: JobEnvironment) -> None:
    try:
        answer = protocol.decode(frames)
    except protocol.ProtocolError as exc:
        target.fault = f"sends an answer that is not a message of this protocol: {exc}"
    else:
        fault = protocol.find_fault(answer, job.job, job.attempt)
        target.is_ready = fault is None
        target.fault = fault and f"refuses: {glog.clean(fault, 1000)}"
    target.due = time.monotonic() + RETRY_INTERVAL


def _explain_silence(target: ProbedService) -> str:
    try:
        with socket.create_connection((target.connection.host, target.connection.port), CONNECT_TIMEOUT):
            return f"accepts connections, but does not answer a hello: {ANOTHER_PROGRAM}"
    except OSError as exc:
        return f"does not answer ({exc.strerror or exc}); see the log of this pserver (server.log)"


def run(services: Sequence[tuple[str, int]], job: JobEnvironment, timeout: float) -> int:
    """Probe the services and return the exit status. The problem of each server is logged in one line."""
    started = time.monotonic()
    try:
        probe(services, job, timeout)
    except PeerUnreachableError as exc:
        for line in str(exc).splitlines():
            glog.error(line)
        return exc.exit_code
    glog.info(f"all {len(services)} pservers are ready after {time.monotonic() - started:.2f} s")
    return 0

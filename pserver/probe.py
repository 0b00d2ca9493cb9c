"""`paddle pserver --probe`: wait until every service of the job answers as a member of this job and attempt.

It imports neither numpy nor anything of the server, because a launcher waits for it.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from pserver import glog, protocol
from pserver.environment import JobEnvironment
from pserver.errors import PeerUnreachableError, UsageError
from pserver.protocol import Message, Op

RETRY_INTERVAL = 0.2  # seconds between two hellos to a server that gave a wrong answer
CONNECT_TIMEOUT = 1.0  # seconds for the plain connection that finds out why nothing answers


@dataclass
class Target:
    """One service that is asked."""

    host: str
    port: int
    socket: zmq.Socket[bytes]
    routing_id: bytes
    nonce: str
    fault: str | None = None  # what it last said, if that was wrong
    due: float = 0.0  # when to ask again
    is_ready: bool = False

    def __str__(self) -> str:
        return f"pserver {self.host}:{self.port}"


def probe(services: Sequence[tuple[str, int]], job: JobEnvironment, timeout: float) -> None:
    """Return when every service has answered a hello with the right version, job, attempt and secret.

    Raises: PeerUnreachableError: at the timeout, with one line per server that does not answer or answers wrongly.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        targets = [_connect(context, host, port) for host, port in services]
        if not _ask_all(targets, job, time.monotonic() + timeout):
            late = [target for target in targets if not target.is_ready]
            raise PeerUnreachableError(
                "\n".join(
                    [f"{len(late)} of {len(targets)} pservers are not ready after {timeout:g} s:"]
                    + [f"{target} {target.fault or _explain_silence(target)}" for target in late]
                )
            )
    finally:
        context.destroy(linger=0)


def _connect(context: zmq.Context[zmq.Socket[bytes]], host: str, port: int) -> Target:
    dealer = context.socket(zmq.DEALER)
    dealer.routing_id = routing_id = b"p" + secrets.token_bytes(16)
    dealer.maxmsgsize = protocol.MAX_NOTE_BYTES
    dealer.reconnect_ivl = 50
    dealer.handshake_ivl = 2000
    try:
        dealer.connect(f"tcp://{host}:{port}")
    except zmq.ZMQError as exc:
        raise UsageError(f"--pservers names '{host}', which is no address: {exc.strerror}") from exc
    return Target(host, port, dealer, routing_id, secrets.token_hex(16))


def _ask_all(targets: Sequence[Target], job: JobEnvironment, deadline: float) -> bool:
    poller = zmq.Poller()
    of_socket = {target.socket: target for target in targets}
    for target in targets:
        poller.register(target.socket, zmq.POLLIN)
    while True:
        now = time.monotonic()
        waiting = [target for target in targets if not target.is_ready]
        if not waiting or now >= deadline:
            return not waiting
        for target in waiting:
            if now >= target.due:
                _ask(target, job)
        wake = min([deadline, *(target.due for target in waiting)])
        for ready, _ in poller.poll(max(1, int((wake - now) * 1000) + 1)):
            _listen(of_socket[ready], job)


def _ask(target: Target, job: JobEnvironment) -> None:
    note = protocol.describe_hello(job.job, job.attempt, job.secret, target.nonce, -1, target.routing_id, role="probe")
    message = Message(Op.HELLO, protocol.session_of(job.job, job.attempt), -1, 1, note=note)
    target.due = float("inf")  # until it answers; zmq connects again by itself and keeps the question
    with contextlib.suppress(zmq.Again):
        target.socket.send_multipart(protocol.encode(message), zmq.NOBLOCK)


def _listen(target: Target, job: JobEnvironment) -> None:
    try:
        answer = protocol.decode(target.socket.recv_multipart())
    except protocol.VersionError as exc:
        target.fault = f"speaks protocol version {exc.version}, this program speaks {protocol.VERSION}"
    except protocol.ProtocolError as exc:
        target.fault = f"answers what is no message of ours: {exc}"
    else:
        fault = protocol.find_fault(answer, job.job, job.attempt, job.secret, target.nonce)
        target.is_ready = fault is None
        target.fault = fault and f"refuses: {fault}"
    target.due = time.monotonic() + RETRY_INTERVAL


def _explain_silence(target: Target) -> str:
    try:
        with socket.create_connection((target.host, target.port), CONNECT_TIMEOUT):
            return "accepts connections, but does not answer a hello"
    except OSError as exc:
        return f"does not answer ({exc.strerror or exc})"


def run(services: Sequence[tuple[str, int]], job: JobEnvironment, timeout: float) -> int:
    """Probe and return the exit status; what is wrong goes to the log, one line per server."""
    started = time.monotonic()
    try:
        probe(services, job, timeout)
    except PeerUnreachableError as exc:
        for line in str(exc).splitlines():
            glog.error(line)
        return exc.exit_code
    glog.info(f"all {len(services)} pservers are ready after {time.monotonic() - started:.2f} s")
    return 0

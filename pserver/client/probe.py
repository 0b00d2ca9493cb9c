"""Waits until every service of the job answers as a member of this job and attempt.

`paddle pserver --probe` does so, and a trainer that a launcher has started does so before it begins. This module
imports neither numpy nor anything of the server, because people and launchers wait for it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from pserver.client.connection import Poller, ServerConnection
from pserver.wire import protocol
from pserver.wire.authentication import PROBE, TOKEN_BYTES
from pserver.wire.connection import Frames
from pserver.wire.protocol import Message, Op
from runtime import glog
from runtime.addresses import list_hosts, list_services
from runtime.environment import JobEnvironment, read_environment
from runtime.errors import ConfigError, PeerUnreachableError

RETRY_INTERVAL = 0.2  # seconds between two hellos to a server that gave a wrong answer
CONNECT_TIMEOUT = 1.0  # seconds for the plain connection that finds out why nothing answers
REPORT_PERIOD = 10.0  # seconds without an answer of all, after which those that are missing are named
NAMED = 5  # services that are named then; all are at the end
_NEVER = float("inf")


@dataclass
class ProbedService:
    """One service that is asked."""

    connection: ServerConnection
    fault: str | None = None  # what it last said, if that was wrong
    due: float = 0.0  # when to ask again
    is_ready: bool = False

    def __str__(self) -> str:
        return f"pserver {self.connection.host}:{self.connection.port}"


def probe(services: Sequence[tuple[str, int]], job: JobEnvironment, timeout: float) -> None:
    """Return when every service has answered a hello with the right version, job, attempt and secret.

    Raises: PeerUnreachableError: at the timeout, with one line per server that does not answer or answers wrongly.
    """
    targets = [_connect(host, port, job.secret) for host, port in services]
    now = began = time.monotonic()
    try:
        while not _ask_all(targets, job, min(began + timeout, now + REPORT_PERIOD)):
            now = time.monotonic()
            late = [target for target in targets if not target.is_ready]
            if now >= began + timeout:
                raise PeerUnreachableError("\n".join(_describe_late(late, late, len(targets), timeout)))
            for line in _describe_late(late, late[:NAMED], len(targets), now - began):
                glog.warning(line)
    finally:
        for target in targets:
            target.connection.close()


def _describe_late(
    late: Sequence[ProbedService], named: Sequence[ProbedService], among: int, waited: float
) -> list[str]:
    return [
        f"{len(late)} of {among} pservers are not ready after {waited:.4g} s:",
        *(f"{target} {target.fault or _explain_silence(target)}" for target in named),
        *([f"and {len(late) - len(named)} more"] if late[len(named) :] else []),
    ]


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
            # the question was lost with its connection, before it was answered
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
    target.due = _NEVER  # until it answers, or the connection breaks
    note = {"job": job.job, "attempt": job.attempt}
    target.connection.send(Message(Op.HELLO, protocol.session_of(job.job, job.attempt), -1, 1, note=note))


def _take(target: ProbedService, frames: Frames, job: JobEnvironment) -> None:
    try:
        answer = protocol.decode(frames)
    except protocol.ProtocolError as exc:
        target.fault = f"answers what is no message of ours: {exc}"
    else:
        fault = protocol.find_fault(answer, job.job, job.attempt)
        target.is_ready = fault is None
        target.fault = fault and f"refuses: {glog.clean(fault, 1000)}"
    target.due = time.monotonic() + RETRY_INTERVAL


def _explain_silence(target: ProbedService) -> str:
    try:
        with socket.create_connection((target.connection.host, target.connection.port), CONNECT_TIMEOUT):
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


def await_pservers(environ: MutableMapping[str, str]) -> None:
    """Wait for the services that PADDLE_AWAIT names, and say so by PADDLE_READY_FD; without the variable do nothing.

    PADDLE_AWAIT is a JSON object of the flags of `paddle pserver --probe` and their values as text. PADDLE_READY_FD is
    a descriptor that gets a byte when all services have answered. Both are taken out of `environ`, so that no child of
    this process does the same.

    Raises: PeerUnreachableError: not all answer in time; the lines before name them. ConfigError: a variable is wrong.
        UsageError: --pservers is.
    """
    text, number = environ.pop("PADDLE_AWAIT", ""), environ.pop("PADDLE_READY_FD", "")
    if not text:
        return
    try:
        flags = json.loads(text)
        ports = int(flags["ports_num"]) + int(flags["ports_num_for_sparse"])
        port, timeout, ready = int(flags["port"]), float(flags["timeout"]), int(number)
        hosts = list_hosts(str(flags["pservers"]), port, ports)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise ConfigError(f"PADDLE_AWAIT cannot be read ({exc!r}); unset it, for it is the launcher's to set") from exc
    if run(list_services(hosts, 0, ports), read_environment(environ), timeout):
        raise PeerUnreachableError("not every pserver of the job answers; the lines above name them")
    try:
        os.write(ready, b"x")
        os.close(ready)
    except OSError as exc:
        raise ConfigError(
            f"PADDLE_READY_FD={number} cannot be written ({exc.strerror}); unset it, for it is the launcher's to set"
        ) from exc

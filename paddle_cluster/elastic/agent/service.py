"""`paddle elastic agent`: starts workers on this machine at the request of the driver of a job.

    PADDLE_SECRET_FILE=/etc/paddle-secret/secret paddle elastic agent --port 7171

A program that has the job's secret may start any command on this machine; the agent refuses all other programs. After a
SIGTERM to the agent, the driver excludes this host, and the workers leave at their next commit. The agent ends workers
that do not leave in time.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.environment import MAKE_SECRET, read_environment
from paddle_base.runtime.errors import HELD_PORT, ConfigError, LostPeerError, PortInUseError, UsageError, stopped_by
from paddle_base.runtime.schema import SchemaError
from paddle_cluster.elastic.agent.protocol import (
    KINDS,
    MOST_CHUNK,
    MOST_LAUNCH_BYTES,
    AgentState,
    is_name,
    read_launch,
    read_mark,
)
from paddle_cluster.elastic.agent.workers import AgentBusyError, AgentWorkers
from paddle_cluster.elastic.constants import AGENT_PORT
from paddle_cluster.elastic.http_server import HttpAnswer, HttpRequest, KVStoreHandler, KVStoreServer
from paddle_cluster.elastic.launching.flags import FlagParser
from paddle_cluster.elastic.launching.guard import GRACE_S

LOOK_S = 0.5  # seconds between two checks for workers without a recent request of a driver
LAST_S = 5.0  # maximum seconds that an ending agent waits until the driver has shown the last output


class AgentOptions(NamedTuple):
    """The options of the command line.

    Attributes: driver_timeout: seconds without a request of a driver after which a worker is ended.  leave_timeout:
        seconds after SIGTERM for the workers to leave on their own.
    """

    port: int = AGENT_PORT
    address: str = ""
    driver_timeout: float = 60.0
    leave_timeout: float = 20.0


def parse_agent_options(argv: Sequence[str]) -> AgentOptions:
    """Parse a command line.

    Raises: UsageError: the command line is wrong.
    """
    parser = FlagParser(prog="paddle elastic agent", allow_abbrev=False, description=(__doc__ or "").split("\n\n")[0])
    add, default = parser.add_argument, AgentOptions()
    add("--port", type=int, default=default.port, help=f"port that the driver calls ({default.port}); 0: any free port")
    add("--address", default=default.address, help="address to listen on (default: all addresses)")
    add(
        "--driver-timeout",
        type=float,
        default=default.driver_timeout,
        help="seconds without a request of a driver after which a worker is ended (60)",
    )
    add(
        "--leave-timeout",
        type=float,
        default=default.leave_timeout,
        help="seconds for workers to leave after SIGTERM (20)",
    )
    found = AgentOptions(**vars(parser.parse_args(argv)))
    if not 0 <= found.port <= 65535:
        raise UsageError(f"--port is {found.port}; it has to be 0 to 65535")
    for name, seconds in (("--driver-timeout", found.driver_timeout), ("--leave-timeout", found.leave_timeout)):
        if not 0 <= seconds <= 1e6:
            raise UsageError(f"{name} is {seconds}; it has to be from 0 to 1000000 seconds")
    return found


class WorkerAgent:
    """The agent of this machine.

    Args: environ: environment variables of this process; they name the secret, and the workers inherit them.
    Raises: ConfigError: there is no secret.  PortInUseError: the agent cannot listen on the address and port.
    """

    def __init__(self, options: AgentOptions, environ: Mapping[str, str]) -> None:
        self._options, self._secret = options, read_environment(environ).secret
        if not self._secret:
            raise ConfigError(
                "an agent needs the secret of its job, or anybody could start programs here; set PADDLE_SECRET or "
                f"PADDLE_SECRET_FILE to the secret of `paddle elastic run`; in a cluster, run {MAKE_SECRET}"
            )
        self.name = secrets.token_hex(8)
        self._workers = AgentWorkers(environ, options.driver_timeout)
        self._server = KVStoreServer(secret=self._secret)
        try:
            self.port = self._server.start_server(self._make_handler(), options.port, options.address)
        except OSError as exc:
            where = f"{options.address or 'all addresses'}:{options.port}"
            reason = f"{HELD_PORT}; end it, or set another --port" if exc.errno == errno.EADDRINUSE else exc.strerror
            raise PortInUseError(f"the agent cannot listen on {where}: {reason}") from exc

    def run(self, is_stopped: threading.Event) -> None:
        """Serve until an event is set; then let the workers leave, and end the workers that do not leave."""
        glog.info(f"the agent {self.name} listens on port {self.port}")
        while not is_stopped.wait(LOOK_S):
            self._workers.check(time.monotonic())
        self._workers.leave()
        count = self._workers.count()
        if count:
            who = "1 worker has" if count == 1 else f"{count} workers have"
            glog.info(f"{who} {self._options.leave_timeout:g} s to leave; then the agent ends what still runs")
        if not self._workers.wait_for_none(self._options.leave_timeout):
            self._workers.end_all()
            self._workers.wait_for_none(3 * GRACE_S)
        until = time.monotonic() + (LAST_S if count else 0.0)
        while time.monotonic() < until and not self._workers.is_all_shown():
            time.sleep(0.05)

    def close(self) -> None:
        """End every worker, and close the port."""
        self._workers.leave()
        self._workers.end_all()
        self._workers.wait_for_none(2 * GRACE_S)
        self._server.shutdown_server()

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a signed request."""
        if (request.method, request.scope, request.key) == ("GET", "agent", "state"):
            state = AgentState(self.name, self._workers.count(), self._workers.is_leaving)
            return HttpAnswer(HTTPStatus.OK, state.encode())
        if request.query.get("agent") != self.name:
            return HttpAnswer(HTTPStatus.CONFLICT, b"this is another agent\n")
        try:
            return self._answer_worker(request)
        except SchemaError as exc:
            return HttpAnswer(HTTPStatus.BAD_REQUEST, f"{exc}\n".encode())
        except LostPeerError as exc:
            return HttpAnswer(HTTPStatus.NOT_FOUND, f"{exc}\n".encode())
        except AgentBusyError as exc:
            return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{exc}\n".encode())

    def _answer_worker(self, request: HttpRequest) -> HttpAnswer:
        if not is_name(request.key):
            raise SchemaError("form", "the request has no valid name of a process")
        match request.method, request.scope:
            case "PUT", "workers":
                self._workers.start(request.key, read_launch(request.body))
                return HttpAnswer(HTTPStatus.OK)
            case "PUT", "ends":
                self._workers.end(request.key)
                return HttpAnswer(HTTPStatus.OK)
            case "GET", "output":
                marks = {kind: read_mark(request.query.get(kind, "-1.0")) for kind in KINDS}
                most = request.query.get("most", "")
                limit = int(most) if most.isascii() and most.isdigit() and len(most) < 10 else MOST_CHUNK
                return HttpAnswer(HTTPStatus.OK, self._workers.read(request.key, marks, limit, request.wait).encode())
            case _:
                return HttpAnswer(HTTPStatus.NOT_FOUND, b"there is no such request\n")

    def _make_handler(self) -> type[KVStoreHandler]:
        agent = self

        class AgentHandler(KVStoreHandler):
            """Answers the requests of a driver."""

            most_body = MOST_LAUNCH_BYTES

            def answer(self, request: HttpRequest) -> HttpAnswer:
                try:
                    return agent.answer(request)
                except Exception as exc:  # an error in a single request must not end the agent
                    glog.error(f"cannot answer {request.method} /{request.scope}: {type(exc).__name__}: {exc}")
                    return HttpAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, b"the agent could not answer\n")

        return AgentHandler


def run_agent(argv: Sequence[str]) -> None:
    """Run `paddle elastic agent` with these arguments until a signal comes.

    Raises: UsageError, ConfigError, PortInUseError: see `WorkerAgent`.  StoppedError: a signal has come.
    """
    agent = WorkerAgent(parse_agent_options(argv), os.environ)
    is_stopped, came = threading.Event(), []

    def stop(number: int, _frame: Any) -> None:
        came.append(number)
        is_stopped.set()
        if len(came) > 1:  # a second signal ends the agent at once
            raise stopped_by(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        agent.run(is_stopped)
    finally:
        agent.close()
    raise stopped_by(came[0])

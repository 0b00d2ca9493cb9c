"""The driver's client for an agent, which signs all requests and accepts only signed answers."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError, LostPeerError, PeerUnreachableError
from paddle_base.runtime.schema import SchemaError
from paddle_cluster.elastic.agent.protocol import (
    MOST_ANSWER,
    MOST_CHUNK,
    AgentState,
    OutputAnswer,
    StreamMark,
    WorkerLaunch,
    read_output_answer,
    read_state,
    write_mark,
)
from paddle_cluster.elastic.keyvalue.exchange import SignedExchange, UnprovenAnswerError
from paddle_cluster.elastic.membership.members import Hearing

PROBE_S = 1.0  # seconds that a probe waits until the agent's machine accepts a connection
REQUEST_S = 5.0  # seconds to connect; also seconds for an answer, after the wait that the request asks for


_T = TypeVar("_T")


class AgentClient:
    """Sends requests to the agent at an address.

    Args: hearing: records the time of every answer.  on_loss: function that `report_loss` calls with this client.

    Attributes: is_listed: whether the last discovery of hosts has found the host of the agent.

    Thread safety: every method may be called from any thread; each request opens a new connection.
    Each method raises PeerUnreachableError if no agent of this job answers, and ConfigError if the agent rejects the
    secret. Each method raises LostPeerError if a different agent answers, if the agent does not have the worker, or if
    the agent starts no more workers.
    """

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        hearing: Hearing | None = None,
        on_loss: Callable[[AgentClient], None] = lambda _: None,
    ) -> None:
        self.address, self.port, self._on_loss = address, port, on_loss
        self._hearing = hearing or Hearing(0.0)
        # every request opens a connection, for its acceptance shows that this driver is not cut off from the agent
        self._exchange = SignedExchange(
            address, port, secret, most=MOST_ANSWER, most_kept=0, on_connect=self._hearing.note
        )
        self.is_listed = True

    def __repr__(self) -> str:
        return f"AgentClient({self.address!r}, {self.port})"

    def read_state(self) -> AgentState:
        """Return the state of the agent."""
        return self._parse(read_state, self._ask("GET", "/agent/state", ""))

    def probe(self) -> None:
        """Record an answer if the agent's machine accepts a connection, even if the agent itself does not answer."""
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), PROBE_S):
            self._hearing.note()

    def start(self, agent: str, name: str, launch: WorkerLaunch) -> None:
        """Start a worker; do nothing if the worker was started before."""
        self._ask("PUT", f"/workers/{name}", agent, launch.encode())

    def end(self, agent: str, name: str) -> None:
        """Request the end of a worker; do not wait for the end."""
        self._ask("PUT", f"/ends/{name}", agent, b"{}")

    def read_output(
        self, agent: str, name: str, marks: Mapping[str, StreamMark], most: int = MOST_CHUNK, wait: float = 0.0
    ) -> OutputAnswer:
        """Return the output of a worker as soon as there is new output, or after `wait` seconds."""
        query = "".join(f"&{kind}={write_mark(mark)}" for kind, mark in marks.items())
        body = self._ask("GET", f"/output/{name}", agent, wait=wait, query=f"{query}&most={most}&wait={wait:.3f}")
        return self._parse(read_output_answer, body)

    def _parse(self, read: Callable[[bytes], _T], body: bytes) -> _T:
        try:
            return read(body)
        except SchemaError as exc:
            raise PeerUnreachableError(f"{self._name} sends a malformed answer: {exc}") from exc

    def measure_silence(self, heard: float, now: float) -> float:
        """Return the number of seconds from `heard` to `now` that count as silence of the agent.

        `Hearing` leaves out the time in which no agent at all answered, because then this driver may be cut off. The
        whole time counts if the discovery does not find the agent's host.
        """
        return self._hearing.measure_silence(heard, now) if self.is_listed else now - heard

    def report_loss(self) -> None:
        """Report that the agent has lost a worker; return when the agent's host is excluded from the discovery."""
        self._on_loss(self)

    @property
    def _name(self) -> str:
        return f"the agent at {self.address}:{self.port}"

    def _ask(self, method: str, path: str, agent: str, body: bytes = b"", wait: float = 0.0, query: str = "") -> bytes:
        """Send a request; return the body of the signed answer."""
        try:
            answer = self._exchange.ask(method, f"{path}?agent={agent}{query}", body, REQUEST_S, wait + REQUEST_S)
        except UnprovenAnswerError as exc:
            self._hearing.note()
            # an agent with another secret cannot sign its refusal; no later try can succeed
            if exc.status == HTTPStatus.FORBIDDEN:
                raise ConfigError(
                    f"{self._name} refuses the secret; driver and agent need the same PADDLE_SECRET"
                ) from exc
            raise PeerUnreachableError(
                f"{self._name} does not prove this job's secret; check which program is there"
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            if isinstance(exc, ConnectionError):  # the machine of the agent answers with a refusal
                self._hearing.note()
            reason = glog.clean(f"{type(exc).__name__}: {exc}", 200)
            raise PeerUnreachableError(
                f"no agent answers at {self.address}:{self.port} ({reason}); run `paddle elastic agent` there"
            ) from exc
        self._hearing.note()
        status, found = answer.status, answer.body
        if status == HTTPStatus.OK:
            return found
        text = glog.clean(found.decode("utf-8", "replace").strip(), 200)
        if status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE):
            raise LostPeerError(f"{self._name} answers {status}: {text}")
        raise PeerUnreachableError(f"{self._name} answers {status}: {text}")

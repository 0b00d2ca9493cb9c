"""A member's side of a protocol, without sockets: joining, requests with deadlines, heartbeats, reconnecting.

The transport reports when a connection is ready or broken, and which messages have arrived. The clock reports the time.
The core returns a list of effects for the transport and the application. `Caller` runs the application's handlers for
these effects, and is what the transport and the application call. If a request has no answer when the connection
breaks, the core sends the request again after the next join. The repeated request has the id of the first request. The
server therefore handles the request only once.
"""

from __future__ import annotations

import collections
import concurrent.futures
import enum
import threading
import time
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

from paddle_base.messages import envelope
from paddle_base.messages.envelope import BEAT, ERROR, JOIN, JOINED, LEAVE, REPLY, Envelope, MemberId
from paddle_base.messages.errors import ClosedError, ControlError, NoAnswerError, RequestRefusedError
from paddle_base.messages.server_core import MOST_OPEN, REPLACED, TAKEN
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.schema import Protocol, SchemaError

SECRET = "secret"  # the code of a connection that fails because the two sides have different secrets
FIRST_DELAY_S, LONGEST_DELAY_S = 0.05, 2.0  # seconds before the next attempt to connect


@dataclass(frozen=True)
class OpenConnection:
    """Connect to the server."""


@dataclass(frozen=True)
class CloseConnection:
    """Close the connection, after queued messages are sent."""


@dataclass(frozen=True)
class ClientSend:
    """Send these bytes."""

    data: bytes


@dataclass(frozen=True)
class Welcomed:
    """The server has accepted this member. A server with another id than before knows no earlier requests."""

    server: MemberId
    welcome: Mapping[str, Any]


@dataclass(frozen=True)
class Disconnected:
    """This member has lost the server for the given reason, and reconnects."""

    reason: str


@dataclass(frozen=True)
class Pushed:
    """A pushed message of the server."""

    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class RequestDone:
    """A request has ended with an answer or with an error."""

    id: int
    answer: Mapping[str, Any] | None = None
    error: ControlError | None = None


ClientEffect = OpenConnection | CloseConnection | ClientSend | Welcomed | Disconnected | Pushed | RequestDone


class ClientState(enum.Enum):
    """The state of a member's connection to its server."""

    WAITING = "waiting"  # this member waits until its next attempt to connect
    CONNECTING = "connecting"  # the connection or the handshake is in progress
    JOINING = "joining"  # connected; the server has not answered the join yet
    JOINED = "joined"  # accepted by the server
    CLOSED = "closed"  # this member never connects again


@dataclass(frozen=True)
class _OpenRequest:
    kind: str
    prepared: envelope.PreparedMessage
    deadline: float
    timeout: float


@dataclass
class _Times:
    """The times of past events and of the next due actions."""

    until: float = float("-inf")  # the deadline of the present state; JOINED has none
    heard: float = 0.0  # time of the server's last message
    said: float = 0.0  # time of the last message that this member sent


def default_delays() -> Iterator[float]:
    """Return the delays before a connection is tried again."""
    return exponential_backoff(FIRST_DELAY_S, LONGEST_DELAY_S)


@dataclass(frozen=True)
class ClientPace:
    """The time limits of a member.

    beat: seconds without a message of the member after which it sends a heartbeat.  silence: seconds without a message
    after which the server counts as lost; also the maximum seconds of connecting and of joining.  delays: returns the
    seconds before each further attempt to connect.
    """

    beat: float = 2.0
    silence: float = 10.0
    delays: Callable[[], Iterator[float]] = default_delays


class ClientCore:
    """One member.

    Args: name: name of the server in messages. hello: returns the content of each join message.
    """

    def __init__(
        self,
        protocol: Protocol,
        realm: str,
        member: MemberId,
        name: str,
        hello: Callable[[], Mapping[str, Any]],
        pace: ClientPace | None = None,
    ) -> None:
        self.protocol, self.name = protocol, name
        self._identity = {"protocol": protocol.title, "realm": realm, "member": member.to_json()}
        self.state = ClientState.WAITING
        self.trouble = "no connection has been tried yet"  # why this member has not joined
        self.counts: collections.Counter[str] = collections.Counter()  # number of refused messages, by code
        self._hello, self._pace = hello, pace or ClientPace()
        self._delays = self._pace.delays()  # the delays between the present attempts to connect
        self._times = _Times()
        self._requests: dict[int, _OpenRequest] = {}
        self._newest = 0

    # ----- Calls of the application -----

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float, now: float) -> tuple[int, list[ClientEffect]]:
        """Send a request to the server, after this member has joined; return the id of the request.

        At the deadline a request ends with an error in this program; the server may have executed the request.
        Raises: SchemaError: the protocol has no request of this kind. ClosedError: this member is closed.
        """
        if self.state is ClientState.CLOSED:
            raise ClosedError(f"{self.name}: {self.trouble}")
        request = self.protocol.requests.get(kind)
        if request is None:
            raise SchemaError("kind", f"{kind!r} is not a request of {self.protocol.title}")
        if len(self._requests) >= MOST_OPEN:
            raise SchemaError("busy", f"{MOST_OPEN} requests to {self.name} have no answer yet")
        request.question.check(body, kind)
        prepared = envelope.prepare(kind, body)
        self._newest += 1
        self._requests[self._newest] = _OpenRequest(kind, prepared, now + timeout, timeout)
        joined = self.state is ClientState.JOINED
        return self._newest, [self._request(self._newest, now)] if joined else []

    def leave(self, reason: str = "it was closed") -> list[ClientEffect]:
        """Close this member permanently: the server receives a message, and open requests fail."""
        if self.state is ClientState.CLOSED:
            return []
        goodbye = [ClientSend(envelope.encode(Envelope(LEAVE)))] if self.state is ClientState.JOINED else []
        return [*goodbye, CloseConnection(), *self._end(reason)]

    # ----- Calls of the transport -----

    def opened(self, now: float) -> list[ClientEffect]:
        """Handle a connection that is ready."""
        if self.state is not ClientState.CONNECTING:
            return []
        return self._join(now)

    def failed(self, reason: str, now: float, code: str = "") -> list[ClientEffect]:
        """Handle a connection that failed or broke; count the failure under a code."""
        if self.state in (ClientState.WAITING, ClientState.CLOSED):
            return []
        if code:
            self.counts[code] += 1
        return self._wait(reason, now)

    def receive(self, data: bytes, now: float) -> list[ClientEffect]:
        """Handle a message; count and drop an invalid message."""
        if self.state not in (ClientState.JOINING, ClientState.JOINED):
            return []
        self._times.heard = now
        try:
            message = envelope.decode(data)
            return self._take(message, now)
        except SchemaError as exc:
            self.counts[exc.code] += 1
            self.trouble = f"a message of the server is refused: {exc}"
            return []

    def _take(self, message: Envelope, now: float) -> list[ClientEffect]:
        if message.kind == BEAT:
            return []
        if message.kind == ERROR:
            envelope.ERROR_FIELDS.check(message.body, ERROR)
            return self._take_error(message, now)
        if message.kind == JOINED:
            return self._take_welcome(message, now)
        if message.kind == REPLY:
            return self._take_reply(message)
        if message.kind not in self.protocol.pushes:
            raise SchemaError("kind", f"{message.kind[:60]!r} is not a push of {self.protocol.title}")
        self.protocol.pushes[message.kind].check(message.body, message.kind)
        return [Pushed(message.kind, message.body)]

    def _take_welcome(self, message: Envelope, now: float) -> list[ClientEffect]:
        if self.state is not ClientState.JOINING:
            return []
        welcome = message.body.get("welcome", {})
        envelope.JOINED_FIELDS.check({key: one for key, one in message.body.items() if key != "welcome"}, JOINED)
        self.protocol.welcome.check(welcome, "welcome")
        self.state, self.trouble, self._delays = ClientState.JOINED, "", self._pace.delays()
        server = MemberId(message.body["server"]["uid"], message.body["server"]["incarnation"])
        return [Welcomed(server, welcome), *(self._request(number, now) for number in sorted(self._requests))]

    def _take_reply(self, message: Envelope) -> list[ClientEffect]:
        request = self._requests.get(message.id)
        if request is None:
            return []
        self.protocol.requests[request.kind].answer.check(message.body, f"the answer to {request.kind}")
        del self._requests[message.id]
        return [RequestDone(message.id, answer=message.body)]

    def _take_error(self, message: Envelope, now: float) -> list[ClientEffect]:
        code, reason = message.body["code"], message.body["reason"]
        if code == "join":  # the server has lost this member; open requests are sent again after the next join
            return [CloseConnection(), *self._wait(reason, now)]
        if message.id:
            asked = self._requests.pop(message.id, None)
            return [RequestDone(message.id, error=RequestRefusedError(code, reason))] if asked else []
        self.counts[code] += 1
        if code in (REPLACED, TAKEN):
            return [CloseConnection(), *self._end(f"the server has refused this member: {reason}")]
        if self.state is ClientState.JOINING:
            return [CloseConnection(), *self._wait(f"the server has refused this member: {reason}", now)]
        self.trouble = reason
        return []

    # ----- Calls of the clock -----

    def due(self) -> float:
        """Return the time of the next tick that has an effect."""
        deadlines = [one.deadline for one in self._requests.values()]
        if self.state is ClientState.CLOSED:
            return float("inf")
        if self.state is ClientState.JOINED:
            return min(
                self._times.said + self._pace.beat, self._times.heard + self._pace.silence, *deadlines, float("inf")
            )
        return min(self._times.until, *deadlines, float("inf"))

    def tick(self, now: float) -> list[ClientEffect]:
        """Perform the actions that are due."""
        late = [number for number, one in self._requests.items() if now >= one.deadline]
        effects: list[ClientEffect] = [self._give_up(number, now) for number in late]
        if self.state is ClientState.WAITING and now >= self._times.until:
            self.state, self._times.until = ClientState.CONNECTING, now + self._pace.silence
            effects.append(OpenConnection())
        elif self.state in (ClientState.CONNECTING, ClientState.JOINING) and now >= self._times.until:
            at = "connecting" if self.state is ClientState.CONNECTING else "joining"
            effects += [CloseConnection(), *self._wait(f"{at} has taken more than {self._pace.silence:g} s", now)]
        elif self.state is ClientState.JOINED and now >= self._times.heard + self._pace.silence:
            effects += [
                CloseConnection(),
                *self._wait(f"the server has been silent for {now - self._times.heard:.1f} s", now),
            ]
        elif self.state is ClientState.JOINED and now >= self._times.said + self._pace.beat:
            effects.append(self._say(BEAT, {}, 0, now))
        return effects

    # -----

    def _join(self, now: float) -> list[ClientEffect]:
        self.state, self._times.until, self._times.heard = ClientState.JOINING, now + self._pace.silence, now
        return [self._say(JOIN, {**self._identity, "hello": self._hello()}, 0, now)]

    def _request(self, number: int, now: float) -> ClientSend:
        self._times.said = now
        return ClientSend(self._requests[number].prepared.encode(number, self._answered_below()))

    def _say(self, kind: str, body: Mapping[str, Any], number: int, now: float) -> ClientSend:
        self._times.said = now
        return ClientSend(envelope.encode(Envelope(kind, body, number, self._answered_below())))

    def _answered_below(self) -> int:
        return next(iter(self._requests), self._newest + 1)  # the requests are sorted by number

    def _wait(self, reason: str, now: float) -> list[ClientEffect]:
        was_joined = self.state is ClientState.JOINED
        self.state, self.trouble = ClientState.WAITING, reason
        self._times.until = now + next(self._delays)
        return [Disconnected(reason)] if was_joined else []

    def _end(self, reason: str) -> list[ClientEffect]:
        was_joined = self.state is ClientState.JOINED
        self.state, self.trouble = ClientState.CLOSED, reason
        closed = ClosedError(f"{self.name}: {reason}")
        ended = [RequestDone(number, error=closed) for number in self._requests]
        self._requests.clear()
        return [*([Disconnected(reason)] if was_joined else []), *ended]

    def _give_up(self, number: int, now: float) -> RequestDone:
        asked = self._requests.pop(number)
        why = self.trouble or f"the request was sent; the last message came {now - self._times.heard:.1f} s ago"
        return RequestDone(
            number, error=NoAnswerError(f"{self.name} has not answered {asked.kind} within {asked.timeout:g} s: {why}")
        )


Answer = concurrent.futures.Future[Mapping[str, Any]]
Command = OpenConnection | CloseConnection | ClientSend
P = ParamSpec("P")


class ClientHandlers(typing.Protocol):
    """The application's handlers for messages of the server. No handler may block. One thread calls all handlers."""

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Handle the welcome message, which contains the current state, and which a member receives after each join."""

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Handle a pushed message of the server."""

    def disconnected(self, reason: str) -> None:
        """Handle the loss of the server; this member reconnects automatically."""


class Caller:
    """Run the application's handlers for a ClientCore's effects, and collect the core's commands for the transport.

    Args: note: writes a line to the log.  clock: returns the time in seconds.
    Attributes: wake: function of the transport, which then takes the commands.

    Thread safety: any thread may use `submit`, `leave` and `trouble`; handlers run without the lock.
    """

    def __init__(
        self,
        core: ClientCore,
        handlers: ClientHandlers,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.core = core
        self.wake: Callable[[], None] = lambda: None
        self._handlers, self._note, self._clock = handlers, note, clock
        self._lock = threading.Lock()
        self._commands: list[Command] = []
        self._answers: dict[int, Answer] = {}

    @property
    def trouble(self) -> str:
        """Why this member has not joined; empty if the member has joined."""
        with self._lock:
            return "" if self.core.state is ClientState.JOINED else self.core.trouble

    @property
    def is_closed(self) -> bool:
        """Whether this member never connects again, because it was closed, or because another process has its place."""
        with self._lock:
            return self.core.state is ClientState.CLOSED

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float) -> Answer:
        """Send a request to the server; see `ClientCore.submit`. A handler must not wait for the answer.

        The answer raises: RequestRefusedError: the server refuses the request.  NoAnswerError: no answer arrives within
            `timeout` seconds.
        """
        answer: Answer = concurrent.futures.Future()
        with self._lock:
            number, effects = self.core.submit(kind, body, timeout, self._clock())
            self._answers[number] = answer
            self._collect(effects)
        self.wake()
        return answer

    def leave(self, reason: str = "it was closed") -> None:
        """Close this member; its open requests fail."""
        with self._lock:
            effects = self.core.leave(reason)
            self._collect(effects)
        self._run([one for one in effects if isinstance(one, RequestDone)])
        self.wake()

    def step(
        self, method: Callable[Concatenate[ClientCore, P], list[ClientEffect]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call a method of the core with an event of the transport, and run the handlers for its effects."""
        with self._lock:
            effects = method(self.core, *args, **kwargs)
            self._collect(effects)
        self._run(effects)

    def due(self) -> float:
        """Return the time of the next tick that has an effect."""
        with self._lock:
            return self.core.due()

    def take_commands(self) -> list[Command]:
        """Return the commands for the transport, in order."""
        with self._lock:
            commands, self._commands = self._commands, []
            return commands

    def _collect(self, effects: list[ClientEffect]) -> None:
        self._commands += [one for one in effects if isinstance(one, Command)]

    def _run(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            try:
                self._tell(effect)
            except Exception as exc:  # an error in a handler must not end the client
                self._note(f"a handler has failed: {''.join(traceback.format_exception(exc))}")

    def _tell(self, effect: ClientEffect) -> None:
        if isinstance(effect, Welcomed):
            self._handlers.welcomed(effect.server, effect.welcome)
        elif isinstance(effect, Pushed):
            self._handlers.pushed(effect.kind, effect.body)
        elif isinstance(effect, Disconnected):
            self._handlers.disconnected(effect.reason)
        elif isinstance(effect, RequestDone):
            with self._lock:
                answer = self._answers.pop(effect.id)
            if not answer.set_running_or_notify_cancel():
                return
            if effect.error is not None:
                answer.set_exception(effect.error)
            else:
                answer.set_result(effect.answer or {})

"""The server's side of a protocol, without sockets: connected and lost members, requests and their answers.

Each message arrives and leaves with a route, which is the transport's name for one connection. A call returns the
consequences of a message as a list of effects. `Dispatcher` runs the application's handlers for these effects, and is
what the transport and the application call.

A request is handled once. A member that reconnects repeats its unanswered requests. The server then sends the stored
answer; if the handler still runs, the server later sends the answer of the handler. The server stores an answer until
the member acknowledges it (`ack`). A new server has no record of the requests of the old server.

A UID is a place. The place belongs to the process that took it first, and another process gets it when the connection
of the first one has ended. The incarnation of a process is only its name: it has no order, because it comes from a
clock, and clocks are set back.
"""

from __future__ import annotations

import collections
import threading
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, cast

from paddle_base.messages import envelope
from paddle_base.messages.envelope import BEAT, JOIN, JOINED, LEAVE, REPLY, Envelope, MemberId
from paddle_base.messages.errors import RequestRefusedError
from paddle_base.runtime.schema import Fields, JsonObject, Protocol, SchemaError

MOST_OPEN = 64  # maximum number of a member's requests that have no answer yet
FORGET_S = 600.0  # seconds after which a lost member's requests and answers are deleted
MOST_RIVALS = 8  # maximum number of earlier processes, and of waiting processes, that are remembered for a UID
HELD, TAKEN, REPLACED = (
    "held",
    "taken",
    "replaced",
)  # codes of refused joins; only HELD may change


@dataclass(frozen=True)
class ServerSend:
    """Send these bytes on this route."""

    route: bytes
    data: bytes


@dataclass(frozen=True)
class MemberJoined:
    """A member has joined or rejoined; `welcome` or `refuse_join` must follow."""

    member: MemberId
    hello: Mapping[str, Any]
    is_back: bool


@dataclass(frozen=True)
class MemberAsked:
    """A request of a member; `answer` or `refuse` must follow, now or later."""

    member: MemberId
    id: int
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class MemberLost:
    """A member is lost for the given reason."""

    member: MemberId
    reason: str


ServerEffect = ServerSend | MemberJoined | MemberAsked | MemberLost


@dataclass
class _Session:
    """The state of a member."""

    member: MemberId
    route: bytes = b""  # route of the connection; empty: the member is not connected
    heard: float = 0.0  # time of the member's last message
    joining: bool = True  # whether the application still has to answer the member's hello
    newest: int = 0  # number of the newest request
    open: dict[int, str] = field(default_factory=dict)  # requests without an answer, and their kinds
    answers: dict[int, bytes] = field(default_factory=dict)  # answers that are kept until the member acknowledges them
    earlier: tuple[int, ...] = ()  # incarnations whose place this process has taken
    rivals: dict[int, float] = field(default_factory=dict)  # {incarnation: when it asked first for this one's place}


class ServerCore:
    """The members of one server.

    Args: realm: text that has to be equal in the members and this server, for example a job's UID.
        member: this server's own identity, which members receive when they join.
        silence: seconds without a message after which a member is lost.
        most_members: maximum joined members; each has up to MOST_OPEN answers in memory.
        probe: seconds without a message after which the server sends a heartbeat. The heartbeat detects a closed
            connection before `silence` has passed.
    """

    def __init__(
        self,
        protocol: Protocol,
        realm: str,
        member: MemberId,
        *,
        silence: float = 10.0,
        most_members: int = 4096,
        probe: float = float("inf"),
    ) -> None:
        self.protocol, self.realm, self.member = protocol, realm, member
        self.counts: collections.Counter[str] = collections.Counter()  # number of refused messages, by code
        self._silence, self._most_members, self._probe = silence, most_members, probe
        self._sessions: dict[str, _Session] = {}  # the members by UID; only one incarnation of each member
        self._routes: dict[bytes, _Session] = {}

    @property
    def joined(self) -> list[MemberId]:
        """The members that are connected now."""
        return [one.member for one in self._routes.values() if not one.joining]

    # ----- Messages of members -----

    def receive(self, route: bytes, data: bytes, now: float) -> list[ServerEffect]:
        """Handle a message."""
        request = 0
        try:
            message = envelope.decode(data)
            request = message.id
            return self._take(route, message, now)
        except SchemaError as exc:
            return [self._error(route, exc.code, str(exc), request)]

    def _take(self, route: bytes, message: Envelope, now: float) -> list[ServerEffect]:
        if message.kind == JOIN:
            return self._join(route, message, now)
        session = self._routes.get(route)
        if session is None:
            return [self._error(route, "join", "this connection has not joined", message.id)]
        session.heard = now
        if message.ack:
            session.answers = {number: kept for number, kept in session.answers.items() if number >= message.ack}
        if message.kind == BEAT:
            return [ServerSend(route, envelope.encode(Envelope(BEAT)))]
        if message.kind == LEAVE:
            return self._lose(session, "it has left", is_final=True)
        return self._ask(session, message)

    def _ask(self, session: _Session, message: Envelope) -> list[ServerEffect]:
        request = self.protocol.requests.get(message.kind)
        if request is None:
            raise SchemaError("kind", f"{message.kind[:60]!r} is no request of {self.protocol.title}")
        request.question.check(message.body, message.kind)
        if message.id in session.answers:
            return [ServerSend(session.route, session.answers[message.id])]
        if message.id in session.open:
            return []
        if message.id <= session.newest:
            raise SchemaError("repeated", f"request {message.id} was answered, and the answer is deleted")
        if len(session.open) >= MOST_OPEN:
            raise SchemaError("busy", f"{MOST_OPEN} requests of this member have no answer yet")
        session.newest = message.id
        session.open[message.id] = message.kind
        return [MemberAsked(session.member, message.id, message.kind, message.body)]

    def _join(self, route: bytes, message: Envelope, now: float) -> list[ServerEffect]:
        hello = message.body.get("hello")
        envelope.JOIN_FIELDS.check({key: value for key, value in message.body.items() if key != "hello"}, JOIN)
        protocol, realm = message.body["protocol"], message.body["realm"]
        if protocol != self.protocol.title:
            raise SchemaError("protocol", f"the member uses {protocol}; this server uses {self.protocol.title}")
        if realm != self.realm:
            raise SchemaError("realm", f"the member belongs to {realm!r}; this server belongs to {self.realm!r}")
        # checked last: a member of another protocol or job sends another hello, and has to read that reason
        self.protocol.hello.check(hello, "hello")
        member = MemberId(message.body["member"]["uid"], message.body["member"]["incarnation"])
        known = self._sessions.get(member.uid)
        other = self._routes.get(route)
        if other is not None and (other is not known or other.member != member):
            raise SchemaError("joined", f"this connection has already joined as {other.member}")
        earlier: tuple[int, ...] = ()
        if known is not None and known.member != member:
            # a process that was replaced while it was cut off must not come back: the two would replace each other in
            # turn
            if member.incarnation in known.earlier:
                raise SchemaError(REPLACED, f"process {known.member.incarnation} has taken the place of {member}")
            if known.route:
                return self._defend(known, member, route, now)
            earlier = (*known.earlier, known.member.incarnation)[-MOST_RIVALS:]
            del self._sessions[member.uid]
        session = self._find(member)
        is_back = session is not None
        if session is None:
            self._make_room()
            session = self._sessions[member.uid] = _Session(member, earlier=earlier)
        # the member's earlier connection may still be open; what comes on it counts no more
        self._routes.pop(session.route, None)
        session.route, session.heard, session.joining = route, now, True
        self._routes[route] = session
        return [MemberJoined(member, cast(JsonObject, hello), is_back)]

    def _defend(self, holder: _Session, rival: MemberId, route: bytes, now: float) -> list[ServerEffect]:
        """Refuse another process while the process that has the place is connected.

        The holder may be dead although its connection is not closed yet, so the server sends it a message, which finds
        a closed connection. The rival tries again, and is refused permanently when the holder was heard after the
        rival's first try.
        """
        first = holder.rivals.setdefault(rival.incarnation, now)
        while len(holder.rivals) > MOST_RIVALS:
            del holder.rivals[next(iter(holder.rivals))]
        text = f"the place of {rival.uid} belongs to its process {holder.member.incarnation}, which is connected"
        if holder.heard > first and not holder.joining:
            advice = "a place has one process: end one of the two, or give this one a name of its own"
            raise SchemaError(TAKEN, f"{text} and works; this process {rival.incarnation} is another one; {advice}")
        probe = ServerSend(holder.route, envelope.encode(Envelope(BEAT)))
        return [probe, self._error(route, HELD, f"{text}; waiting for a sign of its life, or for its end")]

    def _make_room(self) -> None:
        """If there are too many members, delete the member that was lost first.

        Raises: SchemaError: all members are connected.
        """
        if len(self._sessions) < self._most_members:
            return
        oldest = min((one for one in self._sessions.values() if not one.route), key=_last_heard, default=None)
        if oldest is None:
            raise SchemaError("full", f"{self._most_members} members have joined; no more are accepted")
        del self._sessions[oldest.member.uid]

    # ----- Calls of the application -----

    def welcome(self, member: MemberId, body: Mapping[str, Any]) -> list[ServerEffect]:
        """Accept a member that has joined, and send the current state to this member."""
        session = self._find(member)
        if session is None or not session.route:
            return []
        self.protocol.welcome.check(body, "welcome")
        session.joining = False
        said = {"server": self.member.to_json(), "welcome": body}
        return [ServerSend(session.route, envelope.encode(Envelope(JOINED, said)))]

    def refuse_join(self, member: MemberId, code: str, reason: str) -> list[ServerEffect]:
        """Refuse a member, which may try again."""
        session = self._find(member)
        if session is None or not session.route:
            return []
        route = session.route
        self._routes.pop(route, None)
        del self._sessions[member.uid]
        return [self._error(route, code, reason)]

    def answer(self, asked: MemberAsked, body: Mapping[str, Any]) -> list[ServerEffect]:
        """Answer a request; do nothing if the request is already answered, or if its member has left permanently.

        Raises: SchemaError: the answer does not match the protocol; the request stays open.
        """
        self.protocol.requests[asked.kind].answer.check(body, f"the answer to {asked.kind}")
        return self._settle(asked, envelope.encode(Envelope(REPLY, body, asked.id)))

    def refuse(self, asked: MemberAsked, code: str, reason: str) -> list[ServerEffect]:
        """Answer a request with an error."""
        self.counts[code] += 1
        return self._settle(asked, envelope.error(code, reason, asked.id))

    def push(self, kind: str, body: Mapping[str, Any], to: Iterable[MemberId] | None = None) -> list[ServerEffect]:
        """Send a pushed message to some or all joined members. Disconnected members do not receive the message.

        Essential information must also be in the welcome message, which a member receives when it reconnects.
        """
        _fields_of(self.protocol, kind).check(body, kind)
        data = envelope.encode(Envelope(kind, body))
        sessions = self._routes.values() if to is None else [one for one in map(self._find, to) if one is not None]
        return [ServerSend(one.route, data) for one in sessions if one.route and not one.joining]

    def _settle(self, asked: MemberAsked, data: bytes) -> list[ServerEffect]:
        session = self._find(asked.member)
        if session is None or session.open.pop(asked.id, None) is None:
            return []
        session.answers[asked.id] = data
        return [ServerSend(session.route, data)] if session.route and not session.joining else []

    # ----- Calls of the transport and the clock -----

    def broken(self, route: bytes, reason: str) -> list[ServerEffect]:
        """Handle a route on which no message can be sent any more."""
        session = self._routes.get(route)
        return [] if session is None else self._lose(session, reason)

    def tick(self, now: float) -> list[ServerEffect]:
        """Find members that have been silent for too long, and routes whose connection may be closed."""
        silent = [one for one in self._routes.values() if now - one.heard >= self._silence]
        effects: list[ServerEffect] = []
        for one in silent:
            effects += self._lose(one, f"the member has been silent for {now - one.heard:.1f} s")
        quiet = [route for route, one in self._routes.items() if now - one.heard >= self._probe]
        effects += [ServerSend(route, envelope.encode(Envelope(BEAT))) for route in quiet]
        for one in [each for each in self._sessions.values() if not each.route and now - each.heard >= FORGET_S]:
            del self._sessions[one.member.uid]
        return effects

    def _lose(self, session: _Session, reason: str, *, is_final: bool = False) -> list[ServerEffect]:
        was_connected = bool(session.route)
        self._routes.pop(session.route, None)
        session.route = b""
        if is_final:
            self._sessions.pop(session.member.uid, None)
        return [MemberLost(session.member, reason)] if was_connected else []

    def _find(self, member: MemberId) -> _Session | None:
        session = self._sessions.get(member.uid)
        return session if session is not None and session.member == member else None

    def _error(self, route: bytes, code: str, reason: str, request: int = 0) -> ServerSend:
        self.counts[code] += 1
        return ServerSend(route, envelope.error(code, reason, request))


def _last_heard(session: _Session) -> float:
    return session.heard


def _fields_of(protocol: Protocol, kind: str) -> Fields:
    if kind not in protocol.pushes:
        raise SchemaError("kind", f"{kind!r} is no push of {protocol.title}")
    return protocol.pushes[kind]


P = ParamSpec("P")


class ServerHandlers(typing.Protocol):
    """The application's handlers for its members. No handler may block. One thread calls all handlers."""

    def joined(self, member: MemberId, hello: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Accept a member that joins or rejoins; return the welcome message with the current state.

        If the handler returns None, `ServerCore.welcome` or `ServerCore.refuse_join` must follow.
        Raises: RequestRefusedError: the application refuses the member.
        """

    def asked(self, asked: MemberAsked) -> Mapping[str, Any] | None:
        """Return the answer to a request; after None, `ServerCore.answer` or `ServerCore.refuse` must follow.

        Raises: RequestRefusedError: the application refuses the request.
        """

    def lost(self, member: MemberId, reason: str) -> None:
        """Handle the loss of a member."""


class Dispatcher:
    """Run the application's handlers for the effects of a ServerCore, and collect the messages to send.

    An error in a handler does not end the server. The member receives an error, the server counts the error, and `note`
    receives the traceback.

    Args: note: writes a line to the log.
    Attributes: wake: function of the transport, which then sends the messages.

    Thread safety: any thread may use `call`; the handlers run without the lock, in the transport's thread.
    """

    def __init__(self, core: ServerCore, handlers: ServerHandlers, note: Callable[[str], None]) -> None:
        self.core, self.note = core, note
        self.wake: Callable[[], None] = lambda: None
        self._handlers = handlers
        self._lock = threading.Lock()
        self._unsent: collections.deque[ServerSend] = collections.deque()

    def call(
        self, method: Callable[Concatenate[ServerCore, P], list[ServerEffect]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call a method of the core, and handle its effects.

        The application calls `ServerCore.push`, `welcome`, `refuse_join`, `answer` and `refuse`, and the transport
        calls `tick` and `broken`.
        Raises: SchemaError: the protocol does not allow the application's message; a request stays open.
        """
        with self._lock:
            effects = method(self.core, *args, **kwargs)
            self._collect(effects)
        self._run(effects)
        self.wake()

    def receive(self, route: bytes, data: bytes, now: float) -> None:
        """Handle a message; an error about it ends the connection of its member, and not the server."""
        with self._lock:
            try:
                effects = self.core.receive(route, data, now)
            except Exception as exc:
                self._report("a message", exc)
                effects = self.core.broken(route, "a message of the member caused an error in the server")
            self._collect(effects)
        self._run(effects)

    def next_send(self) -> ServerSend | None:
        """Return the next message to send; the messages are in the order of their creation."""
        with self._lock:
            return self._unsent.popleft() if self._unsent else None

    # -----

    def _collect(self, effects: Iterable[ServerEffect]) -> None:
        """Collect messages in the same critical section in which the core has made them, which keeps their order."""
        self._unsent.extend(one for one in effects if isinstance(one, ServerSend))

    def _run(self, effects: Iterable[ServerEffect]) -> None:
        """Call the handlers, in order."""
        for effect in effects:
            try:
                self._handle(effect)
            except RequestRefusedError as exc:
                self._refuse(effect, exc)
            except Exception as exc:  # an error in a handler must not end the server
                self._report(_name(effect), exc)
                self._refuse(effect, RequestRefusedError("failed", f"an error in the server: {_describe(exc)}"))

    def _handle(self, effect: ServerEffect) -> None:
        if isinstance(effect, MemberAsked):
            answer = self._handlers.asked(effect)
            if answer is not None:
                self.call(ServerCore.answer, effect, answer)
        elif isinstance(effect, MemberJoined):
            welcome = self._handlers.joined(effect.member, effect.hello)
            if welcome is not None:
                self.call(ServerCore.welcome, effect.member, welcome)
        elif isinstance(effect, MemberLost):
            self._handlers.lost(effect.member, effect.reason)

    def _refuse(self, effect: ServerEffect, fault: RequestRefusedError) -> None:
        """Tell a member that its join or its request is refused."""
        if isinstance(effect, MemberAsked):
            self.call(ServerCore.refuse, effect, fault.code, str(fault))
        elif isinstance(effect, MemberJoined):
            self.call(ServerCore.refuse_join, effect.member, fault.code, str(fault))

    def _report(self, what: str, error: Exception) -> None:
        self.core.counts["failed"] += 1
        self.note(f"{what} has failed: {''.join(traceback.format_exception(error))}")


def _name(effect: ServerEffect) -> str:
    if isinstance(effect, MemberAsked):
        return f"request {effect.kind} of {effect.member}"
    if isinstance(effect, ServerSend):
        return "a message to a member"
    return f"the {'join' if isinstance(effect, MemberJoined) else 'loss'} of {effect.member}"


def _describe(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the error's own text fails
        return type(error).__name__

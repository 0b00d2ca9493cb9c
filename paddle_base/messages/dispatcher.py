"""Pass members' messages to the application, and the application's messages to members, without sockets."""

from __future__ import annotations

import collections
import threading
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec

from paddle_base.messages.envelope import MemberId
from paddle_base.messages.errors import RequestRefusedError
from paddle_base.messages.server_core import MemberAsked, MemberJoined, MemberLost, ServerCore, ServerEffect, ServerSend

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

    Thread safety: any thread may use `call`; the handlers run without the lock.
    """

    def __init__(self, core: ServerCore, handlers: ServerHandlers, note: Callable[[str], None]) -> None:
        self.core, self.note = core, note
        self.wake: Callable[[], None] = lambda: None
        self._handlers = handlers
        self._lock = threading.Lock()
        self._unsent: collections.deque[ServerSend] = collections.deque()

    def receive(self, route: bytes, data: bytes, now: float) -> None:
        """Handle a message; an error about it ends the connection of its member, and not the server."""
        with self._lock:
            try:
                effects = self.core.receive(route, data, now)
            except Exception as exc:
                self._report("a message", exc)
                effects = self.core.broken(route, "a message of the member caused an error in the server")
        self._run(effects)

    def tick(self, now: float) -> None:
        """Pass the current time to the core."""
        with self._lock:
            effects = self.core.tick(now)
        self._run(effects)

    def broken(self, route: bytes, reason: str) -> None:
        """Handle the loss of a connection; no message can be sent on its route any more."""
        with self._lock:
            effects = self.core.broken(route, reason)
        self._run(effects)

    def next_send(self) -> ServerSend | None:
        """Return the next message to send; the messages are in the order of their creation."""
        with self._lock:
            return self._unsent.popleft() if self._unsent else None

    def call(
        self, method: Callable[Concatenate[ServerCore, P], list[ServerEffect]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call `ServerCore.push` or another method for the application, and send the messages that it returns.

        Raises: SchemaError: the protocol does not allow the message.
        """
        with self._lock:
            self._collect(method(self.core, *args, **kwargs))
        self.wake()

    # -----

    def _run(self, effects: list[ServerEffect]) -> None:
        """Collect messages to send, and call the handlers, in order."""
        for effect in effects:
            if isinstance(effect, MemberJoined):
                self._join(effect)
            elif isinstance(effect, MemberAsked):
                self._ask(effect)
            elif isinstance(effect, MemberLost):
                self._guard(f"the loss of {effect.member}", lambda lost=effect: self._lose(lost))  # type: ignore[misc]
            else:
                with self._lock:
                    self._collect([effect])

    def _join(self, joined: MemberJoined) -> None:
        fault = self._guard(f"the join of {joined.member}", lambda: self._welcome(joined))
        if fault is not None:
            self.call(ServerCore.refuse_join, joined.member, fault.code, str(fault))

    def _welcome(self, joined: MemberJoined) -> None:
        welcome = self._handlers.joined(joined.member, joined.hello)
        if welcome is not None:
            self.call(ServerCore.welcome, joined.member, welcome)

    def _ask(self, asked: MemberAsked) -> None:
        fault = self._guard(f"request {asked.kind} of {asked.member}", lambda: self._answer(asked))
        if fault is not None:
            self.call(ServerCore.refuse, asked, fault.code, str(fault))

    def _answer(self, asked: MemberAsked) -> None:
        answer = self._handlers.asked(asked)
        if answer is not None:
            self.call(ServerCore.answer, asked, answer)

    def _lose(self, lost: MemberLost) -> None:
        self._handlers.lost(lost.member, lost.reason)

    def _guard(self, what: str, work: Callable[[], None]) -> RequestRefusedError | None:
        """Run a handler; return the error that a member receives, or None."""
        try:
            work()
        except RequestRefusedError as exc:
            return exc
        except Exception as exc:  # an error in a handler must not end the server
            self._report(what, exc)
            return RequestRefusedError("failed", f"an error in the server: {_describe(exc)}")
        return None

    def _report(self, what: str, error: Exception) -> None:
        self.core.counts["failed"] += 1
        self.note(f"{what} has failed: {''.join(traceback.format_exception(error))}")

    def _collect(self, effects: Iterable[ServerEffect]) -> None:
        self._unsent.extend(one for one in effects if isinstance(one, ServerSend))


def _describe(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the error's own text fails
        return type(error).__name__

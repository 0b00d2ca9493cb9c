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

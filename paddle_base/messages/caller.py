"""Pass the server's messages to the application, and the application's requests to the server, without sockets."""

from __future__ import annotations

import concurrent.futures
import threading
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any

from paddle_base.messages.client_core import (
    ClientCore,
    ClientEffect,
    ClientSend,
    ClientState,
    CloseConnection,
    Disconnected,
    OpenConnection,
    Pushed,
    RequestDone,
    Welcomed,
)
from paddle_base.messages.envelope import MemberId

Answer = concurrent.futures.Future[Mapping[str, Any]]
Command = OpenConnection | CloseConnection | ClientSend


class ClientHandlers(typing.Protocol):
    """The application's handlers for messages of the server. No handler may block. One thread calls all handlers."""

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Handle the welcome message, which contains the current state, and which a member receives after each join."""

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Handle a pushed message of the server."""

    def disconnected(self, reason: str) -> None:
        """Handle the loss of the server; this member reconnects automatically."""


class ControlCalling(typing.Protocol):
    """The methods that the real client and the fake client offer. Any thread may call these methods."""

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float) -> Answer:
        """Send a request to the server; the request ends with an answer or an error within `timeout` seconds."""

    @property
    def trouble(self) -> str:
        """Why this member has not joined; empty if the member has joined."""

    @property
    def is_closed(self) -> bool:
        """Whether this member never connects again, because it was closed, or because another process has its place."""


class Caller:
    """Run the application's handlers for a ClientCore's effects, and collect the core's commands for the transport.

    Thread safety: any thread may use `submit`, `leave` and `trouble`; handlers run without the lock.
    """

    def __init__(
        self, core: ClientCore, handlers: ClientHandlers, note: Callable[[str], None], wake: Callable[[], None]
    ) -> None:
        self._core = core
        self._handlers, self._note, self._wake = handlers, note, wake
        self._lock = threading.Lock()
        self._commands: list[Command] = []
        self._answers: dict[int, Answer] = {}

    @property
    def trouble(self) -> str:
        """See `ControlCalling`."""
        with self._lock:
            return "" if self._core.state is ClientState.JOINED else self._core.trouble

    @property
    def is_closed(self) -> bool:
        """See `ControlCalling`."""
        with self._lock:
            return self._core.state is ClientState.CLOSED

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float, now: float) -> Answer:
        """See `ControlCalling`.

        Raises: SchemaError: the protocol has no request of this kind.  ClosedError: this member is closed.
        """
        answer: Answer = concurrent.futures.Future()
        with self._lock:
            number, effects = self._core.submit(kind, body, timeout, now)
            self._answers[number] = answer
            self._collect(effects)
        self._wake()
        return answer

    def leave(self, reason: str = "it was closed") -> None:
        """Close this member; its open requests fail."""
        with self._lock:
            effects = self._core.leave(reason)
            self._collect(effects)
        self._run([one for one in effects if isinstance(one, RequestDone)])
        self._wake()

    def step(self, work: Callable[[ClientCore], list[ClientEffect]]) -> None:
        """Pass an event to the core, and run the handlers for its effects."""
        with self._lock:
            effects = work(self._core)
            self._collect(effects)
        self._run(effects)

    def due(self) -> float:
        """Return the time of the next tick that has an effect."""
        with self._lock:
            return self._core.due()

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

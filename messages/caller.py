"""Brings what the server says to the application, and its requests to the server (no sockets)."""

from __future__ import annotations

import concurrent.futures
import threading
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any

from messages.client_core import (
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
from messages.envelope import MemberId

Answer = concurrent.futures.Future[Mapping[str, Any]]
Command = OpenConnection | CloseConnection | ClientSend


class ClientHandlers(typing.Protocol):
    """What an application hears from its server. Nothing of it may block; all calls come from one thread."""

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Take note that this member has joined, or is back, and of where things stand."""

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take what the server tells."""

    def disconnected(self, reason: str) -> None:
        """Take note that the server is lost; this member tries to come back by itself."""


class ControlCalling(typing.Protocol):
    """What a client offers to its application: the real one and the fake. All of it may be called from any thread."""

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float) -> Answer:
        """Ask the server something; the answer comes, or an error, within `timeout` seconds."""

    @property
    def trouble(self) -> str:
        """Why this member has not joined; empty when it has."""


class Caller:
    """Runs the handlers for a core, and collects what the transport is to do.

    Thread safety: `submit`, `leave` and `trouble` may be used from any thread; handlers run without the lock.
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
        """Whether this member is closed for good."""
        return self._core.state is ClientState.CLOSED

    def submit(self, kind: str, body: Mapping[str, Any], timeout: float, now: float) -> Answer:
        """See `ControlCalling`.

        Raises: SchemaError: it is no request of the protocol.  ClosedError: this member is closed.
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
        """Tell the core something, and run the handlers for what follows."""
        with self._lock:
            effects = work(self._core)
            self._collect(effects)
        self._run(effects)

    def due(self) -> float:
        """Return the time of the next tick that does something."""
        with self._lock:
            return self._core.due()

    def take_commands(self) -> list[Command]:
        """Return what the transport is to do, in order."""
        with self._lock:
            commands, self._commands = self._commands, []
            return commands

    def _collect(self, effects: list[ClientEffect]) -> None:
        self._commands += [one for one in effects if isinstance(one, Command)]

    def _run(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            try:
                self._tell(effect)
            except Exception as exc:  # a handler's fault must not end the client
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

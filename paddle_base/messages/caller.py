"""Pass the server's messages to the application, and the application's requests to the server, without sockets."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

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

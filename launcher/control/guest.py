"""What the other launchers do with trainer 0's: they hear of attempts from it, and report to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.control.news import AttemptNews
from launcher.text import JsonObject
from messages.caller import ControlCalling
from messages.envelope import MemberId

ANSWER_S = 10.0  # seconds for trainer 0's launcher to take a report


class RendezvousGuest:
    """The handlers of the client (messages.caller.ClientHandlers). `client` is set as soon as there is one.

    Args: ip, host: of this pod.  last: how the newest attempt has ended in this pod, if one has.
    """

    def __init__(self, ip: str, host: str, news: AttemptNews, last: JsonObject | None) -> None:
        self.client: ControlCalling | None = None
        self._place = {"ip": ip, "host": host}
        self._news, self._last = news, last

    def hello(self) -> JsonObject:
        """Returns what is said at every join."""
        return {**self._place, "last": self._last}

    def report(self, error: JsonObject) -> None:
        """Tells how the attempt has ended in this pod. Where the report is lost, the next hello says it again."""
        self._last = error
        if self.client:
            self.client.submit("report", {"error": error}, ANSWER_S)

    def tell_left(self, attempt: str) -> None:
        """Tells that all trainers have said goodbye to this pod's pserver."""
        if self.client:
            self.client.submit("left", {"attempt": attempt}, ANSWER_S)

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Takes what this launcher has missed."""
        self._news.take_welcome(welcome)

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Takes what trainer 0's launcher tells."""
        self._news.take(kind, body)

    def disconnected(self, reason: str) -> None:
        """Wakes the thread that waits for news."""
        self._news.signal()

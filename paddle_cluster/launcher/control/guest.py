"""The client side of the control connection. A client receives attempts from trainer 0's launcher and sends reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_base.messages.caller import ControlCalling
from paddle_base.messages.envelope import MemberId
from paddle_cluster.launcher.control.news import AttemptNews
from paddle_cluster.launcher.text import JsonObject

ANSWER_S = 10.0  # seconds for trainer 0's launcher to acknowledge a report


class RendezvousGuest:
    """The handlers of the client (paddle_base.messages.caller.ClientHandlers). `ControlChannel` sets `client`.

    Args: ip, host: address and host name of this pod. last: the last error that this pod has reported, or None.
    """

    def __init__(self, ip: str, host: str, news: AttemptNews, last: JsonObject | None) -> None:
        self.client: ControlCalling | None = None
        self._place = {"ip": ip, "host": host}
        self._news, self._last = news, last

    def hello(self) -> JsonObject:
        """Return the content of the hello message, which the client sends whenever it connects."""
        return {**self._place, "last": self._last}

    def report(self, error: JsonObject) -> None:
        """Send this pod's error. If the message is lost, the next hello message repeats the error."""
        self._last = error
        if self.client:
            self.client.submit("report", {"error": error}, ANSWER_S)

    def tell_left(self, attempt: str) -> None:
        """Report that all trainers have left this pod's pserver."""
        if self.client:
            self.client.submit("left", {"attempt": attempt}, ANSWER_S)

    def welcomed(self, server: MemberId, welcome: Mapping[str, Any]) -> None:
        """Apply the state in the server's welcome message."""
        self._news.take_welcome(welcome)

    def pushed(self, kind: str, body: Mapping[str, Any]) -> None:
        """Apply a message that trainer 0's launcher has pushed."""
        self._news.take(kind, body)

    def disconnected(self, reason: str) -> None:
        """Wake the thread that waits for messages."""
        self._news.signal()

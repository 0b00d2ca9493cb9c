"""The client's background thread checks that every server is alive, and is the first to detect that the job failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddle_base.runtime import glog
from paddle_base.runtime.errors import LostPeerError, PaddleError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.wakeup import WakeUp
from pserver.client.connection import Poller, ServerConnection
from pserver.wire import protocol, views
from pserver.wire.connection import Frames
from pserver.wire.protocol import Message, Op

# maximum characters of the text of a server's error; the text may contain the error of another trainer
MAX_MESSAGE = 4000
_MAX_WAITING = 10  # maximum pings that wait until a connection is made


@dataclass
class ServerLiveness:
    """The state of one server in the heartbeat thread. `session` identifies the job and attempt in messages to the
    server.
    """

    connection: ServerConnection
    session: bytes
    asked: float | None = None  # time at which the oldest unanswered ping was sent
    heard: float = 0.0


class Heartbeat(ServiceThread):
    """Send heartbeats to every server, and detect servers that do not answer.

    Args: servers: the state of the server of each service.  describe: a function that returns the note of a ping.

    The thread has its own connections, so that a ping never waits behind a gradient or for the main thread.
    `failure` is set once, when the job cannot continue; the client raises it.
    """

    def __init__(
        self,
        servers: Sequence[ServerLiveness],
        trainer: int,
        peer_timeout: float,
        describe: Callable[[], Mapping[str, Any]],
    ) -> None:
        super().__init__(self.serve, "heartbeat")
        self.failure: PaddleError | None = None
        self._trainer, self._describe = trainer, describe
        self._peer_timeout = peer_timeout
        self._interval = min(1.0, peer_timeout / 5)
        self._wakeup = WakeUp()
        self._is_over = False
        self._servers = list(servers)
        self._of_connection = {server.connection: server for server in servers}

    def stop(self) -> None:
        """End the thread and close its connections."""
        self._is_over = True
        self._wakeup.call()
        if self.is_alive():
            self.join()
        self._wakeup.close()

    def hurry(self) -> None:
        """Ping every server now, because the note of a ping has changed; any thread may call this method."""
        self._wakeup.call()

    def serve(self) -> None:
        """Send pings, receive answers and check the servers, until `stop` is called or the job fails."""
        poller = Poller(list(self._of_connection), self._wakeup.fileno())
        for server in self._servers:
            server.heard = time.monotonic()
        due = 0.0
        try:
            while self.failure is None and not self._is_over:
                now = time.monotonic()
                if now >= due:
                    due = now + self._interval
                    for server in self._servers:
                        self._ask(server, now)
                for connection, messages in poller.wait(due - now):
                    for frames in messages:
                        self._listen(self._of_connection[connection], frames)
                if self._wakeup.clear():
                    due = 0.0
                for server in self._servers:
                    self._judge(server, time.monotonic())
        finally:
            for connection in self._of_connection:
                connection.close()

    def _ask(self, server: ServerLiveness, now: float) -> None:
        if server.connection.waiting < _MAX_WAITING:
            server.connection.send(Message(Op.PING, server.session, self._trainer, 0, note=self._describe()))
        if server.asked is None:
            server.asked = now

    def _listen(self, server: ServerLiveness, frames: Frames) -> None:
        try:
            answer = protocol.decode(frames)
        except protocol.ProtocolError:
            return
        if answer.op == Op.ERROR:
            self.failure = self.failure or error_of(answer, server.connection.peer)
        server.asked, server.heard = None, time.monotonic()

    def _judge(self, server: ServerLiveness, now: float) -> None:
        why = None
        closed = server.connection.closed
        if closed is not None and now - closed > protocol.RECONNECT_GRACE:
            why = f"its connection closed {now - closed:.1f} s ago and it accepts no new connection"
        elif server.asked is not None and now - server.asked > self._peer_timeout:
            why = server.connection.fault or "it does not answer"
        if why and self.failure is None:
            self.failure = LostPeerError(
                f"{server.connection.peer} is lost: {why}; its last message arrived {now - server.heard:.1f} s ago"
            )


def error_of(answer: Message, name: str) -> PaddleError:
    """Return the error that a server sent: an `EpochChangedError`, or an error of the class that has the sent exit
    code.
    """
    text = glog.clean(answer.note.get("message", f"{name} refuses without a reason"), MAX_MESSAGE)
    epoch = views.read_epoch(answer.note)
    if epoch is not None:
        return views.EpochChangedError(text, epoch)
    code = answer.note.get("exit_code")
    for kind in PaddleError.__subclasses__():
        if kind.exit_code == code:
            return kind(text)
    return LostPeerError(f"{name}: {text}")

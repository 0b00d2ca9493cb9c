"""The client's background thread: asks every server whether it lives, and hears first when the job is over."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pserver import glog, protocol
from pserver.errors import LostPeerError, PaddleError
from pserver.links import Link, Watch
from pserver.membership import RECONNECT_GRACE
from pserver.protocol import Buffer, Message, Op
from pserver.transport import Frames

MAX_MESSAGE = 4000  # characters of an error that a server tells; it may hold another trainer's reason
_MOST_WAITING = 10  # questions that nobody answers need not pile up


@dataclass
class Pulse:
    """What the thread knows of one server."""

    link: Link
    name: str
    ping: list[Buffer]
    asked: float | None = None  # when the oldest question without an answer was sent
    heard: float = 0.0


class Heartbeat(threading.Thread):
    """Keeps every server assured of this trainer, and this trainer of every server.

    Args: services: host, port and the key that signs its messages, of each.

    It lives on connections of its own, so that a heartbeat never waits behind a gradient, and the main thread may
    compute as long as it likes. `failure` is set once, when the job cannot go on; the client raises it.
    """

    def __init__(
        self,
        services: Sequence[tuple[str, int, bytes]],
        connection: bytes,
        session: bytes,
        trainer: int,
        peer_timeout: float,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.failure: PaddleError | None = None
        ping = Message(Op.PING, session, trainer, 0)
        self._peer_timeout = peer_timeout
        self._interval = min(1.0, peer_timeout / 5)
        self._woken, self._wake = os.pipe()
        self._pulses = [
            Pulse(Link(host, port, connection), f"pserver {host}:{port}", protocol.encode(ping, key))
            for host, port, key in services
        ]
        self._of_link = {pulse.link: pulse for pulse in self._pulses}

    def stop(self) -> None:
        """End the thread and close its connections."""
        if self.is_alive():
            os.write(self._wake, b"x")
            self.join()
        os.close(self._wake)
        os.close(self._woken)

    def run(self) -> None:
        """Ask, listen and judge until stopped or until a failure."""
        watch = Watch(list(self._of_link), self._woken)
        for pulse in self._pulses:
            pulse.heard = time.monotonic()
        due = 0.0
        try:
            while self.failure is None:
                now = time.monotonic()
                if now >= due:
                    due = now + self._interval
                    for pulse in self._pulses:
                        self._ask(pulse, now)
                for link, messages in watch.wait(due - now):
                    for frames in messages:
                        self._listen(self._of_link[link], frames)
                if select.select([self._woken], [], [], 0)[0]:
                    return
                for pulse in self._pulses:
                    self._judge(pulse, time.monotonic())
        finally:
            for link in self._of_link:
                link.close()

    def _ask(self, pulse: Pulse, now: float) -> None:
        if pulse.link.waiting < _MOST_WAITING:
            pulse.link.send(pulse.ping)
        if pulse.asked is None:
            pulse.asked = now

    def _listen(self, pulse: Pulse, frames: Frames) -> None:
        try:
            answer = protocol.decode(frames)
        except protocol.ProtocolError:
            return
        if answer.op == Op.ERROR:
            self.failure = self.failure or error_of(answer, pulse.name)
        pulse.asked, pulse.heard = None, time.monotonic()

    def _judge(self, pulse: Pulse, now: float) -> None:
        why = None
        closed = pulse.link.closed
        if closed is not None and now - closed > RECONNECT_GRACE:
            why = f"its connection closed {now - closed:.1f} s ago and it accepts no new one"
        elif pulse.asked is not None and now - pulse.asked > self._peer_timeout:
            why = "it does not answer"
        if why and self.failure is None:
            self.failure = LostPeerError(
                f"{pulse.name} is lost: {why}; it was last heard of {now - pulse.heard:.1f} s ago"
            )


def error_of(answer: Message, name: str) -> PaddleError:
    """Return the error that a server sent, as the class that has its exit code."""
    text = glog.clean(answer.note.get("message", f"{name} refuses without a reason"), MAX_MESSAGE)
    code = answer.note.get("exit_code")
    for kind in PaddleError.__subclasses__():
        if kind.exit_code == code:
            return kind(text)
    return LostPeerError(f"{name}: {text}")

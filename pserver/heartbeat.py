"""The client's background thread: asks every server whether it lives, and hears first when the job is over."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from pserver import protocol
from pserver.errors import LostPeerError, PaddleError
from pserver.membership import RECONNECT_GRACE
from pserver.monitor import read_event
from pserver.protocol import Buffer, Message, Op

_WAKE = "inproc://wake"


@dataclass
class Pulse:
    """What the thread knows of one server."""

    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    name: str
    ping: list[Buffer]
    asked: float | None = None  # when the oldest question without an answer was sent
    closed: float | None = None  # when its connection closed
    heard: float = 0.0


class Heartbeat(threading.Thread):
    """Keeps every server assured of this trainer, and this trainer of every server.

    Args: services: host, port and the key that signs its messages, of each.

    It lives on connections of its own, so that a heartbeat never waits behind a gradient, and the main thread may
    compute as long as it likes. `failure` is set once, when the job cannot go on; the client raises it.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        services: Sequence[tuple[str, int, bytes]],
        routing_id: bytes,
        session: bytes,
        trainer: int,
        peer_timeout: float,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.failure: PaddleError | None = None
        ping = Message(Op.PING, session, trainer, 0)
        self._peer_timeout = peer_timeout
        self._interval = min(1.0, peer_timeout / 5)
        self._wake = context.socket(zmq.PAIR)
        self._wake.bind(f"{_WAKE}-{routing_id.hex()}")
        self._woken = context.socket(zmq.PAIR)
        self._woken.connect(f"{_WAKE}-{routing_id.hex()}")
        self._pulses = [
            self._connect(context, host, port, routing_id, protocol.encode(ping, key)) for host, port, key in services
        ]

    def stop(self) -> None:
        """End the thread and close its sockets."""
        if self.is_alive():
            self._wake.send(b"")
            self.join()
        self._wake.close(linger=0)

    def run(self) -> None:
        """Ask, listen and judge until stopped or until a failure."""
        poller = zmq.Poller()
        poller.register(self._woken, zmq.POLLIN)
        for pulse in self._pulses:
            poller.register(pulse.socket, zmq.POLLIN)
            poller.register(pulse.monitor, zmq.POLLIN)
            pulse.heard = time.monotonic()
        due = 0.0
        try:
            while self.failure is None:
                now = time.monotonic()
                if now >= due:
                    due = now + self._interval
                    for pulse in self._pulses:
                        self._ask(pulse, now)
                ready = dict(poller.poll(max(1, int((due - now) * 1000))))
                if self._woken in ready:
                    return
                for pulse in self._pulses:
                    self._listen(pulse)
                    self._judge(pulse, time.monotonic())
        finally:
            for pulse in self._pulses:
                pulse.socket.disable_monitor()
                pulse.monitor.close(linger=0)
                pulse.socket.close(linger=0)
            self._woken.close(linger=0)

    @staticmethod
    def _connect(
        context: zmq.Context[zmq.Socket[bytes]], host: str, port: int, routing_id: bytes, ping: list[Buffer]
    ) -> Pulse:
        socket = context.socket(zmq.DEALER)
        socket.routing_id = routing_id
        socket.maxmsgsize = protocol.MAX_NOTE_BYTES
        socket.reconnect_ivl = 100
        socket.linger = 0
        socket.sndhwm = 10  # questions that nobody answers need not pile up
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        socket.connect(f"tcp://{host}:{port}")
        return Pulse(socket, monitor, f"pserver {host}:{port}", ping)

    def _ask(self, pulse: Pulse, now: float) -> None:
        with contextlib.suppress(zmq.Again):
            pulse.socket.send_multipart(pulse.ping, zmq.NOBLOCK)
        if pulse.asked is None:
            pulse.asked = now

    def _listen(self, pulse: Pulse) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                event, _ = read_event(pulse.monitor)
                pulse.closed = time.monotonic() if event == zmq.EVENT_DISCONNECTED else None
        with contextlib.suppress(zmq.Again, protocol.ProtocolError):
            while True:
                answer = protocol.decode(pulse.socket.recv_multipart(zmq.NOBLOCK))
                if answer.op == Op.ERROR:
                    self.failure = self.failure or error_of(answer, pulse.name)
                pulse.asked, pulse.heard = None, time.monotonic()

    def _judge(self, pulse: Pulse, now: float) -> None:
        why = None
        if pulse.closed is not None and now - pulse.closed > RECONNECT_GRACE:
            why = f"its connection closed {now - pulse.closed:.1f} s ago and it accepts no new one"
        elif pulse.asked is not None and now - pulse.asked > self._peer_timeout:
            why = "it does not answer"
        if why and self.failure is None:
            self.failure = LostPeerError(
                f"{pulse.name} is lost: {why}; it was last heard of {now - pulse.heard:.1f} s ago"
            )


def error_of(answer: Message, name: str) -> PaddleError:
    """Return the error that a server sent, as the class that has its exit code."""
    text = str(answer.note.get("message", f"{name} refuses without a reason"))
    code = answer.note.get("exit_code")
    for kind in PaddleError.__subclasses__():
        if kind.exit_code == code:
            return kind(text)
    return LostPeerError(f"{name}: {text}")

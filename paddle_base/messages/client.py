"""A member of a protocol: a DEALER socket, and a thread that keeps the socket connected.

Each connection has its own socket, and libzmq's reconnection is off. Only `client_core` decides which messages are
repeated after a disconnection, and when. Therefore no old message waits in a queue of libzmq. The monitor of libzmq
reports when the handshake has succeeded, or why the handshake has failed.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time

import zmq

from paddle_base.messages.client_core import SECRET, Caller, ClientCore, ClientSend, OpenConnection
from paddle_base.messages.envelope import MAX_BYTES
from paddle_base.messages.keys import CurveKeys
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.wakeup import WakeUp

CONNECT_S = 5.0  # maximum seconds for the TCP connection, and also for the handshake that follows
QUEUED = 256  # maximum queued messages in each direction
CLOSING_S = 1.0  # maximum seconds of sending the last messages after `close`
TURN = 256  # maximum number of messages that are received before queued messages are sent

_EVENT = struct.Struct("=HI")
_FAILURES = {
    zmq.EVENT_CONNECT_DELAYED: "",  # the connection is still being made
    zmq.EVENT_CONNECT_RETRIED: "no connection to the server can be made",
    zmq.EVENT_CLOSED: "no connection to the server can be made",
    zmq.EVENT_DISCONNECTED: "the server has closed the connection",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the server has closed the connection in the handshake",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "the program at this address is not a control server of this job",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the server has another secret; "
    "PADDLE_SECRET must be the same for all programs of a job",
}
_ONE_SECRET = "one side has a secret, the other has none; PADDLE_SECRET must be the same for all programs of a job"


class ControlClient:
    """A member that joins, and reconnects when necessary, until it is closed.

    Args: host, port: address of the server. caller: the application's side. keys: derived from the job's secret; None
        if the job has no secret.  source: the local address of the connection; empty: the system chooses an address.
    """

    def __init__(self, host: str, port: int, caller: Caller, keys: CurveKeys | None, source: str = "") -> None:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._endpoint = f"tcp://{source}:0;{target}" if source else f"tcp://{target}"
        self._keys = keys
        self.caller = caller
        self._wakeup = WakeUp()
        self._context = zmq.Context()
        self._dealer: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._is_closing = False
        self._thread = ServiceThread(self._run, "messages-client")
        caller.wake = self._wake
        self._thread.start()

    def close(self) -> None:
        """Leave; the queued messages are sent for at most a second."""
        if self._is_closing:
            return
        self.caller.leave()
        self._is_closing = True
        self._wake()
        self._thread.join()
        self._context.destroy(int(CLOSING_S * 1000))
        self._wakeup.close()

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -----

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:  # the client's thread checks the queue after each event
            self._wakeup.call()

    def _run(self) -> None:
        while not self._is_closing:
            self._obey()
            due = self.caller.due()
            self._wait(due)
            if time.monotonic() >= due:
                self.caller.step(ClientCore.tick, time.monotonic())
        self._obey()
        self._disconnect(CLOSING_S)

    def _obey(self) -> None:
        """Execute the core's commands for the transport."""
        for command in self.caller.take_commands():
            if isinstance(command, OpenConnection):
                self._connect()
            elif not isinstance(command, ClientSend):
                self._disconnect(CLOSING_S)
            elif self._dealer is not None:
                try:
                    self._dealer.send(command.data, zmq.DONTWAIT)
                except zmq.Again:
                    self._fail("the server does not read its messages")

    def _wait(self, due: float) -> None:
        """Wait until a message arrives, a message is queued, or a tick is due; receive messages."""
        poller = zmq.Poller()
        poller.register(self._wakeup.fileno(), zmq.POLLIN)
        for each in (self._dealer, self._monitor):
            if each is not None:
                poller.register(each, zmq.POLLIN)
        left = due - time.monotonic()
        ready = dict(poller.poll(max(0, int(min(left, 3600.0) * 1000) + 1) if left > 0 else 0))
        if self._wakeup.fileno() in ready:
            self._wakeup.clear()
        if self._dealer is not None and self._dealer in ready:
            self._take(self._dealer)
        if self._monitor is not None and self._monitor in ready:
            self._watch(self._monitor)

    def _take(self, dealer: zmq.Socket[bytes]) -> None:
        for _ in range(TURN):
            try:
                frames = dealer.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self.caller.step(ClientCore.receive, b"".join(frames), time.monotonic())

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        """Handle libzmq's events about the connection."""
        with contextlib.suppress(zmq.Again):
            while monitor is self._monitor:
                frames = monitor.recv_multipart(zmq.DONTWAIT)
                event, value = _EVENT.unpack(frames[0][: _EVENT.size])
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self.caller.step(ClientCore.opened, time.monotonic())
                elif value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH and event in _FAILURES:
                    self._fail(_ONE_SECRET, SECRET)
                elif _FAILURES.get(event):
                    self._fail(_FAILURES[event], SECRET if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH else "")

    def _fail(self, reason: str, code: str = "") -> None:
        if self._dealer is not None:
            self._take(self._dealer)  # messages that arrived before the connection ended
        self._disconnect(0.0)
        self.caller.step(ClientCore.failed, reason, time.monotonic(), code)

    def _connect(self) -> None:
        try:
            self._dealer = self._open_dealer()
            self._monitor = self._dealer.get_monitor_socket()
        except zmq.ZMQError as exc:  # no file descriptor is free; the next attempt may find some
            self._fail(f"no connection can be opened: {exc.strerror}")
            return
        try:
            self._dealer.connect(self._endpoint)
        except zmq.ZMQError as exc:
            self._fail(f"{self._endpoint} is not an address: {exc.strerror}")

    def _open_dealer(self) -> zmq.Socket[bytes]:
        dealer = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.MAXMSGSIZE, MAX_BYTES),
            (zmq.RCVHWM, QUEUED),
            (zmq.SNDHWM, QUEUED),
            (zmq.RECONNECT_IVL, -1),
            (zmq.CONNECT_TIMEOUT, int(CONNECT_S * 1000)),
            (zmq.HANDSHAKE_IVL, int(CONNECT_S * 1000)),
            (zmq.LINGER, int(CLOSING_S * 1000)),
            (zmq.IPV6, 1),
        ):
            dealer.setsockopt(option, value)
        if self._keys:
            dealer.setsockopt(zmq.CURVE_SERVERKEY, self._keys.server_public)
            dealer.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.client_public)
            dealer.setsockopt(zmq.CURVE_SECRETKEY, self._keys.client_private)
        return dealer

    def _disconnect(self, linger: float) -> None:
        """Close the connection if it exists; queued messages may still be sent."""
        if self._dealer is None:
            return
        self._dealer.disable_monitor()
        if self._monitor is not None:
            self._monitor.close(0)
        self._dealer.close(int(linger * 1000))
        self._dealer = self._monitor = None

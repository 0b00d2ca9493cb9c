"""The server of a protocol: a ROUTER socket behind a gate, with a thread for messages and a thread for connections.

Messages to all members also use ROUTER and DEALER, instead of PUB and SUB. Members must join, authenticate and send
heartbeats in any case. The server can therefore push a message to all members in a loop. A member receives pushed
messages and answers in the order of sending, through one port, with one handshake and one heartbeat. A SUB socket would
lose messages that are sent while it connects, and no program would notice the loss.

If the job has a secret, the server accepts peers that prove that they know the secret (CURVE, see `keys`). If the job
has no secret, the server accepts peers at addresses for which `admits` returns True. The gate checks the addresses (see
`gate`). libzmq's authentication (ZAP) cannot check them, because libzmq sees only the gate's local connections.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

import zmq

from paddle_base.messages.envelope import MAX_BYTES
from paddle_base.messages.gate import LISTEN_BACKLOG, Gate, GateLimits, GateTarget, Refusals
from paddle_base.messages.keys import ZAP_DOMAIN, CurveKeys, answer_zap
from paddle_base.messages.server_core import Dispatcher, ServerCore
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.wakeup import WakeUp

TICK_S = 0.25  # seconds between two checks for silent members
# maximum queued messages from a member, each up to 1 MiB; while the queue is full, libzmq reads nothing from the member
RECEIVED = 64
# maximum queued messages to a member, both answers and pushes; if the queue is full, the member counts as lost
SENT = 1024
CLOSING_S = 1.0  # maximum seconds of sending the last messages after `close`
TURN = 256  # maximum number of messages that are received before queued messages are sent
_INNER_BACKLOG = 1024  # backlog of libzmq's socket; it exceeds the gate's limit of unauthenticated connections
# computed once, because operations on enums are slow
_NOW, _NOW_MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)


class ControlServer:
    """Carry the messages of a `Dispatcher` and its members until `close`.

    Args: host, port: address on which the server listens; port 0: any free port, which the attribute `port` contains.
        dispatcher: the application's side; it also writes the log.  keys: derived from the job's secret; None if the
        job has no secret.  admits: returns whether a peer at an address may connect.  limits: see `GateLimits`.
    Raises: OSError: the port is in use, or the address does not belong to this machine.  ConfigError: this process may
        have too few open files.
    """

    def __init__(
        self,
        host: str,
        port: int,
        dispatcher: Dispatcher,
        keys: CurveKeys | None,
        admits: Callable[[str], bool] = lambda address: True,
        limits: GateLimits | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self._refusals = Refusals(dispatcher.note)
        limits = (limits or GateLimits()).fit(dispatcher.note)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # a port in use is found here, before there is a context or a thread to end
        listener = socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
        self.port: int = listener.getsockname()[1]
        # the whole pod sees the abstract name; no other program can guess it and take it first
        inner = f"paddle-messages-{os.getpid()}-{secrets.token_hex(8)}"
        self._context = zmq.Context()
        self._keys = keys
        self._zap = self._open_zap() if keys else None
        self._router = self._open_router(inner, limits)
        target = GateTarget(inner, b"CURVE" if keys else b"NULL", admits)
        self._gate = Gate(listener, target, limits, self._refusals)
        self._is_closing = False
        self._wakeup = WakeUp()
        self._thread = ServiceThread(self._run, "messages-server")
        dispatcher.wake = self._wake
        self._thread.start()

    @property
    def counts(self) -> dict[str, int]:
        """Number of refused messages and connections, by reason."""
        both = (self.dispatcher.core.counts, self._refusals.counts)
        return {code: sum(one[code] for one in both) for code in sorted({*both[0], *both[1]})}

    def close(self) -> None:
        """Stop; the queued messages are sent for at most a second."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wakeup.call()
        self._thread.join()
        self._gate.close(CLOSING_S)
        self._context.destroy(0)
        self._wakeup.close()

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -----

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:  # the server's thread sends after each event
            self._wakeup.call()

    def _open_router(self, inner: str, limits: GateLimits) -> zmq.Socket[bytes]:
        router = self._context.socket(zmq.ROUTER)
        for option, value in (
            (zmq.MAXMSGSIZE, MAX_BYTES),
            (zmq.RCVHWM, RECEIVED),
            (zmq.SNDHWM, SENT),
            (zmq.HANDSHAKE_IVL, int(limits.handshake * 1000)),
            (zmq.LINGER, int(CLOSING_S * 1000)),
            (zmq.BACKLOG, _INNER_BACKLOG),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.IPC_FILTER_PID, os.getpid()),  # no other program of the pod may connect to the socket
        ):
            router.setsockopt(option, value)
        if self._keys:
            router.setsockopt(zmq.CURVE_SERVER, 1)
            router.setsockopt(zmq.CURVE_SECRETKEY, self._keys.server_private)
            router.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
            router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        router.bind(f"ipc://@{inner}")
        return router

    def _open_zap(self) -> zmq.Socket[bytes]:
        zap = self._context.socket(zmq.REP)
        zap.setsockopt(zmq.LINGER, 0)
        zap.bind("inproc://zeromq.zap.01")
        return zap

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._wakeup.fileno(), zmq.POLLIN)
        if self._zap:
            poller.register(self._zap, zmq.POLLIN)
        ticked = time.monotonic()
        while not self._is_closing:
            ready = dict(poller.poll(int(TICK_S * 1000)))
            if self._wakeup.fileno() in ready:
                self._wakeup.clear()
            if self._zap and self._keys and self._zap in ready:
                self._zap.send_multipart(answer_zap(self._zap.recv_multipart(), self._keys.client_public))
            self._take()
            now = time.monotonic()
            if now - ticked >= TICK_S:
                ticked = now
                self.dispatcher.call(ServerCore.tick, now)
            self._send()
        self._send()
        self._router.close()
        if self._zap:
            self._zap.close()

    def _take(self) -> None:
        for _ in range(TURN):
            try:
                route = self._router.recv(_NOW)
            except zmq.Again:
                return
            message = self._router.recv(_NOW, copy=False)
            if not message.more:
                self.dispatcher.receive(route, message.bytes, time.monotonic())
                continue
            while message.more:  # a valid message has one frame after the route
                message = self._router.recv(_NOW, copy=False)
            self.dispatcher.core.counts["frames"] += 1

    def _send(self) -> None:
        for send in iter(self.dispatcher.next_send, None):
            try:
                self._router.send(send.route, _NOW_MORE)
                self._router.send(send.data, _NOW)
            except zmq.Again:
                self.dispatcher.call(ServerCore.broken, send.route, "the member does not read its messages")
            except zmq.ZMQError as exc:
                if exc.errno != zmq.EHOSTUNREACH:
                    raise
                self.dispatcher.call(ServerCore.broken, send.route, "the connection is gone")

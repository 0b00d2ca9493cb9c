"""The process side of the parameter servers: binds, reads, sends; every decision is the service's.

All ports of a process are served by one thread with one poller. Arithmetic on a shard is bound by memory, not by
instructions, and a shard's step follows its last push at once, so more threads would mostly wait for each other and
for the interpreter's lock; zmq moves the bytes in its own thread meanwhile. And one thread needs no locks: the process
ends as one, when a service fails or when all are done.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import zmq

from pserver import glog, protocol
from pserver.errors import BugError, ConfigError, LostPeerError, PaddleError, PortInUseError, StoppedError
from pserver.membership import TOKEN_BYTES, Identity
from pserver.monitor import read_event
from pserver.service import Outgoing, Service

POLL_INTERVAL_MS = 250  # between two looks at the clock
READS_PER_TURN = 64  # messages read from one port before the next port gets its turn
RECEIVE_QUEUE = 64  # messages of one connection that may wait to be read
LINGER_MS = 1000  # for the last messages to leave


@dataclass(frozen=True)
class Options:
    """What all services of a process share; times in seconds, buffers in bytes (0: the system's choice)."""

    num_trainers: int = 1
    job: str = ""
    attempt: str = ""
    secret: str = ""
    peer_timeout: float = 15.0
    join_timeout: float = 600.0
    log_period: int = 500
    send_buffer: int = 0
    receive_buffer: int = 0
    backlog: int = 1024


class Server:
    """One parameter server per endpoint, until the job is over.

        server = Server([("127.0.0.1", 7164)], Options(num_trainers=3))
        server.bind()
        server.run()

    Thread safety: one thread runs it; only `stop` may be called from another one.
    """

    def __init__(self, endpoints: Sequence[tuple[str, int]], options: Options) -> None:
        self.endpoints = list(endpoints)
        self.options = options
        self.services = [
            Service(
                Identity(f"{host}:{port}", options.num_trainers, options.job, options.attempt, options.secret),
                options.peer_timeout,
                options.join_timeout,
                options.log_period,
            )
            for host, port in self.endpoints
        ]
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._monitors: list[zmq.Socket[bytes]] = []
        self._descriptors: dict[tuple[int, int], bytes] = {}  # (service, file descriptor) -> whose connection
        self._stop_reason = ""

    def bind(self) -> None:
        """Listen on every endpoint.

        Raises: PortInUseError: naming the address and port.  ConfigError: if the address is none of this machine's.
        """
        try:
            for number, (host, port) in enumerate(self.endpoints):
                glog.info(f"Starting parameterServer[{number}]", at="ParameterServerController.cpp:87")
                self._bind_one(host, port)
        except PaddleError:
            self.close()
            raise
        glog.info("Waiting parameterServer[0]", at="ParameterServerController.cpp:96")

    def run(self) -> None:
        """Serve until all trainers have said goodbye on every port that any trainer joined.

        Raises: LostPeerError, PeerUnreachableError, ConfigError: why the job cannot go on; every trainer was told.
            StoppedError: after `stop`.
        """
        # the first arithmetic should not wait for numpy, nor the first hello
        warm = threading.Thread(target=importlib.import_module, args=("pserver.arithmetic",), daemon=True)
        warm.start()
        try:
            self._serve()
        except PaddleError:
            raise
        except Exception as exc:
            self._fail(BugError(f"{self._name()} failed: {type(exc).__name__}: {exc}"))
            raise
        finally:
            warm.join()
            self.close()

    def stop(self, reason: str) -> None:
        """Make `run` end with StoppedError between two messages; for other threads and for signal handlers.

        An exception out of a handler could come in the middle of a request, and be taken for its failure.
        """
        self._stop_reason = reason

    def close(self) -> None:
        """Let the last messages leave, then close every socket; may be called again."""
        for socket in self._sockets:
            socket.disable_monitor()
        self._context.destroy(linger=LINGER_MS)

    # ----- Sockets -----

    def _bind_one(self, host: str, port: int) -> None:
        socket = self._context.socket(zmq.ROUTER)
        self._sockets.append(socket)
        socket.maxmsgsize = protocol.MAX_NOTE_BYTES  # a larger frame is refused before memory is taken for it
        socket.sndhwm = 0  # answers are bounded by what was asked for, and copy nothing
        socket.rcvhwm = RECEIVE_QUEUE
        socket.router_handover = True  # a client that comes back is the same client
        socket.linger = LINGER_MS
        socket.backlog = self.options.backlog
        if self.options.send_buffer:
            socket.sndbuf = self.options.send_buffer
        if self.options.receive_buffer:
            socket.rcvbuf = self.options.receive_buffer
        self._monitors.append(socket.get_monitor_socket(zmq.EVENT_DISCONNECTED))
        try:
            socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise PortInUseError(f"cannot listen on {host}:{port}: another process holds this port") from exc
            raise ConfigError(f"cannot listen on {host}:{port}: {exc.strerror}") from exc
        glog.info("tcp server start ", at="LightNetwork.cpp:269")

    def _serve(self) -> None:
        poller = zmq.Poller()
        for socket in (*self._sockets, *self._monitors):
            poller.register(socket, zmq.POLLIN)
        try:
            while not self._is_done():
                ready = poller.poll(POLL_INTERVAL_MS)
                if self._stop_reason:
                    raise StoppedError(self._stop_reason)
                self._read(socket for socket, _ in ready)
                if not poller.poll(0):  # judge silence only when nothing is left to read
                    for number, service in enumerate(self.services):
                        self._send(number, service.check(time.monotonic()))
                self._raise_failure()
        except StoppedError as exc:
            self._fail(LostPeerError(f"{self._name()} is leaving: {exc}"))
            raise

    def _read(self, ready: Iterable[zmq.Socket[bytes]]) -> None:
        sockets = set(ready)
        for number, (socket, monitor) in enumerate(zip(self._sockets, self._monitors, strict=True)):
            if monitor in sockets:
                self._read_monitor(number, monitor)
            if socket in sockets:
                self._read_socket(number, socket)

    def _read_socket(self, number: int, socket: zmq.Socket[bytes]) -> None:
        service = self.services[number]
        for _ in range(READS_PER_TURN):
            try:
                frames = _receive(socket)
            except zmq.Again:
                return
            routing_id = frames[0].bytes
            descriptor = _descriptor(frames[0])
            if descriptor is not None and len(routing_id) == TOKEN_BYTES + 1:
                self._descriptors[number, descriptor] = routing_id
            self._send(
                number,
                service.handle(
                    routing_id, _peer_address(frames[0]), [frame.buffer for frame in frames[1:]], time.monotonic()
                ),
            )

    def _read_monitor(self, number: int, monitor: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                _, descriptor = read_event(monitor)
                routing_id = self._descriptors.pop((number, descriptor), None)
                if routing_id:
                    self.services[number].suspect(routing_id, time.monotonic())

    def _send(self, number: int, outgoing: Sequence[Outgoing]) -> None:
        for routing_id, frames in outgoing:
            # a peer that went away in between is no error; one whose queue is full is found by its silence
            with contextlib.suppress(zmq.Again):
                self._sockets[number].send_multipart([routing_id, *frames], zmq.NOBLOCK, copy=False)

    # ----- The end -----

    def _is_done(self) -> bool:
        used = [service for service in self.services if service.is_used]
        return bool(used) and all(service.is_done for service in used)

    def _raise_failure(self) -> None:
        failure = next((service.failure for service in self.services if service.failure), None)
        if failure:
            self._fail(failure)
            raise failure

    def _fail(self, error: PaddleError) -> None:
        for number, service in enumerate(self.services):
            self._send(number, service.fail(error))

    def _name(self) -> str:
        return "pserver " + ", ".join(service.identity.name for service in self.services)


def _receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """Return the frames of one message; of one with far too many only the first few are kept."""
    frames = [socket.recv(zmq.NOBLOCK, copy=False)]
    while frames[-1].more:
        frames.append(socket.recv(copy=False))
        if len(frames) > protocol.MAX_FRAMES + 2:
            more = frames.pop().more
            while more:
                more = socket.recv(copy=False).more
            break
    return frames


def _descriptor(frame: zmq.Frame) -> int | None:
    """Return the file descriptor of the sender's connection; who speaks an older zmq, or mere noise, has none."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return None


def _peer_address(frame: zmq.Frame) -> str:
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return "an unknown address"

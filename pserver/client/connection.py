"""Connections of a client to services: a client connects when the service listens, and reconnects after a break."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pserver.wire import protocol
from pserver.wire.authentication import NO_KEYS, NONCE_BYTES, ClientHandshake
from pserver.wire.connection import Connection, ConnectionLimits, Frames, Place, linger
from pserver.wire.protocol import Buffer, Message

# what may be the cause if a port accepts connections but gives no right answer
ANOTHER_PROGRAM = "another program, such as a web server, may have this port"
RECONNECT_INTERVAL = 0.1  # seconds between two attempts to connect
# maximum seconds from a connection's first packet to the end of its handshake; then a new connection is made
HANDSHAKE_TIMEOUT = 10.0
_UNDER_WAY = (errno.EINPROGRESS, errno.EAGAIN)


def new_memory(frames: Sequence[Buffer], size: int) -> list[memoryview]:
    """Return new memory for a payload."""
    return [memoryview(bytearray(size))]


@dataclass(frozen=True)
class Endpoint:
    """The address of a service and the settings of a connection to it; see `ServerConnection`."""

    host: str
    port: int
    name: bytes
    secret: str
    max_payload: int
    source: str


@dataclass
class ConnectAttempt:
    """A connection whose handshake is not complete."""

    stream: socket.socket | None = None
    handshake: ClientHandshake | None = None  # set when the stream is connected
    began: float = 0.0  # start of the last attempt, in seconds of the monotonic clock
    due: float = 0.0  # time of the next attempt; during a handshake, the time at which this side gives the handshake up


class ServerConnection:
    """A connection to one service, which reconnects after a break.

    Messages wait until the service has proven that it knows the secret. If the connection breaks before a message
    arrives, the message is lost.

    Args:

    - `name`: the name of this connection, which the client sends to the service.
    - `secret`: the secret of the job, or empty.
    - `max_payload`: maximum length of a received payload.
    - `source`: the local address, which the service names in its messages. If `source` is empty, the system chooses an
      address. For every service in 127.0.0.0/8, it chooses 127.0.0.1.

    Attributes:

    - `closed`: time of the break; None: the connection exists, or is being made for the first time.
    - `breaks`: number of times that the connection has broken.
    - `fault`: why the last handshake failed.
    - `keys`: the keys that sign the messages of the connection.
    - `place`: see `Connection`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: bytes,
        secret: str,
        *,
        max_payload: int = 0,
        source: str = "",
    ) -> None:
        self.established: Connection | None = None
        self.closed: float | None = None
        self.breaks = 0
        self.fault = ""
        self.keys = NO_KEYS
        self.place: Place = new_memory
        self._endpoint = Endpoint(host, port, name, secret, max_payload, source)
        self._is_mute = False  # whether the last connection has got no answer to the greeting
        self._unknown = ""  # reason why the host name cannot be resolved
        self._waiting: list[Message] = []
        self._attempt = ConnectAttempt()

    def __del__(self) -> None:
        self.close()

    @property
    def host(self) -> str:
        """The host of the service."""
        return self._endpoint.host

    @property
    def port(self) -> int:
        """The port of the service."""
        return self._endpoint.port

    @property
    def peer(self) -> str:
        """The name of the service, for messages."""
        return f"pserver {self.host}:{self.port}"

    def send(self, message: Message) -> None:
        """Send a message as soon as possible; payloads are not copied, and must not change until they are sent."""
        if self.established is None:
            self._waiting.append(message)
            return
        try:
            self.established.send(protocol.encode(message, self.keys.sending))
        except OSError:
            self._break()

    @property
    def silence(self) -> str:
        """Describe why the service sends nothing."""
        if self._unknown:
            return f"cannot be found: {self._unknown}"
        if self._is_mute:
            return f"accepts connections, but does not answer: {ANOTHER_PROGRAM}"
        return "does not answer"

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the connection."""
        return len(self._waiting)

    def close(self) -> None:
        """Close the connection for ever; unsent messages are lost."""
        for stream in (self._attempt.stream, self.established):
            if stream is not None:
                stream.close()
        self._attempt.stream = self.established = None
        self._attempt.due = float("inf")

    # ----- Called by `wait` -----

    def begin(self, now: float) -> float:
        """Try to connect if an attempt is due; return the seconds until the next attempt. There is no connection."""
        if now < self._attempt.due:
            return self._attempt.due - now
        if self._attempt.stream is not None:  # the handshake has taken too long
            self._break()
        self._attempt.began, self._attempt.due = now, now + HANDSHAKE_TIMEOUT
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            # one address is enough: the next attempt asks the resolver again
            family, kind, number, _, address = found[0]
            self._attempt.stream = socket.socket(family, kind, number)
            self._attempt.stream.setblocking(False)
            # from a loopback address, no other machine can be reached, and the reverse
            if self._endpoint.source and _is_loopback(self._endpoint.source) == _is_loopback(str(address[0])):
                # if this machine no longer has the address, the system chooses another address
                with contextlib.suppress(OSError):
                    self._attempt.stream.bind((self._endpoint.source, 0))
            code = self._attempt.stream.connect_ex(address)
            # a new attempt is no answer, so the text of the last one stays; a refused attempt shows that nobody listens
            self._is_mute = self._is_mute and code in (0, *_UNDER_WAY)
            if code not in (0, *_UNDER_WAY):
                raise OSError(code, os.strerror(code))
            self._unknown = ""
        except (OSError, UnicodeError) as exc:  # UnicodeError: the text cannot be a host name, e.g. a..b
            self._unknown = str(exc.strerror) if isinstance(exc, socket.gaierror) else ""
            if isinstance(exc, UnicodeError):
                self._unknown = "a part of the name between two dots is empty or too long"
            self._break()
        return max(0.0, self._attempt.due - now)

    @property
    def awaited(self) -> tuple[int, int] | None:
        """The file descriptor and the events to poll for."""
        if self._attempt.stream is not None:
            return self._attempt.stream.fileno(), select.POLLOUT if self._attempt.handshake is None else select.POLLIN
        if self.established is None:
            return None
        return self.established.stream.fileno(), select.POLLIN | (select.POLLOUT if self.established.unsent else 0)

    def handle(self, events: int) -> list[Frames]:
        """Handle an event; return the messages that are complete and signed."""
        try:
            if self._attempt.stream is not None:
                self._go_on(self._attempt.stream)
                return []
            connection = self.established
            if connection is None:
                return []
            if events & select.POLLOUT:
                connection.flush()
            messages = connection.receive() if events & ~select.POLLOUT else []
        except (OSError, EOFError):
            self._break()
            return []
        return self.accept(connection, messages)

    def accept(self, connection: Connection, messages: list[Frames]) -> list[Frames]:
        """Return the signed ones of the messages that the established connection has received; break the connection if
        it is faulty.
        """
        signed = [frames for frames in messages if protocol.is_signed(frames, self.keys.receiving)]
        if connection.fault or len(signed) < len(messages):
            self._break()
        return signed

    def _go_on(self, stream: socket.socket) -> None:
        """Begin the handshake, or continue it."""
        if self._attempt.handshake is None:
            code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._is_mute = False
                raise OSError(code, os.strerror(code))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._attempt.handshake = ClientHandshake(
                self._endpoint.secret, self._endpoint.name, secrets.token_bytes(NONCE_BYTES)
            )
            self._is_mute = True
            stream.sendall(self._attempt.handshake.greeting)  # the send buffer of a new stream has room for these bytes
            self.closed = None
            return
        data = stream.recv(self._attempt.handshake.wanted)
        self._is_mute = not data
        if not data:
            raise EOFError("closed by the other side")
        answer = self._attempt.handshake.feed(data)
        if self._attempt.handshake.fault:
            self.fault = self._attempt.handshake.fault
            raise EOFError(self.fault)
        if answer:
            stream.sendall(answer)
        if not self._attempt.handshake.wanted:
            self._open(stream, self._attempt.handshake)

    def _open(self, stream: socket.socket, handshake: ClientHandshake) -> None:
        self._attempt.stream = self._attempt.handshake = None
        self.fault, self.keys = "", handshake.keys
        self.established = Connection(
            stream, self.place, ConnectionLimits(protocol.MAX_NOTE_BYTES, self._endpoint.max_payload)
        )
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.established.send(protocol.encode(message, self.keys.sending))

    def _break(self) -> None:
        self.breaks += self.established is not None
        if self.closed is None:
            self.closed = time.monotonic()
        for stream in (self._attempt.stream, self.established):
            if stream is not None:
                stream.close()
        self._attempt.stream = self._attempt.handshake = self.established = None
        self._attempt.due = self._attempt.began + RECONNECT_INTERVAL


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")


class Poller:
    """Wait for several connections, and reconnect them when necessary.

    The set of awaited events is updated only when it changes, because an update takes as long as a round with a small
    gradient.

    Args: wake: a file descriptor that ends the wait when it becomes readable.
    """

    def __init__(self, connections: Sequence[ServerConnection], wake: int | None = None) -> None:
        self._connections = connections
        self._poller = select.poll()
        self._awaited: list[tuple[int, int] | None] = [None] * len(connections)
        self._of_file: dict[int, ServerConnection] = {}
        if wake is not None:
            self._poller.register(wake, select.POLLIN)

    def wait(self, timeout: float) -> list[tuple[ServerConnection, list[Frames]]]:
        """Wait at most `timeout` seconds for messages, and return the messages that have arrived."""
        now = time.monotonic()
        for number, connection in enumerate(self._connections):
            if connection.established is None:
                timeout = min(timeout, connection.begin(now))
            awaited = connection.awaited
            if awaited != self._awaited[number]:
                self._change(number, awaited)
        ready = self._poller.poll(1000 * timeout)
        of_file = self._of_file
        come = []
        for file, events in ready:
            if file in of_file and (messages := of_file[file].handle(events)):
                come.append((of_file[file], messages))
        return come

    def _change(self, number: int, awaited: tuple[int, int] | None) -> None:
        connection, before = self._connections[number], self._awaited[number]
        # the number of a closed file descriptor may belong to another connection now
        if (
            before is not None
            and self._of_file.get(before[0]) is connection
            and (awaited is None or before[0] != awaited[0])
        ):
            del self._of_file[before[0]]
            self._poller.unregister(before[0])
        if awaited is not None:
            self._of_file[awaited[0]] = connection
            self._poller.register(*awaited)
        self._awaited[number] = awaited


def close_all(connections: Sequence[ServerConnection], seconds: float) -> None:
    """Close connections when the other sides have read all messages, or after `seconds` at the latest."""
    linger([connection.established for connection in connections if connection.established is not None], seconds)
    for connection in connections:
        connection.close()

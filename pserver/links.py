"""The client's side of connections: made when the server is there, and made again when they break."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Sequence

from pserver import protocol
from pserver.protocol import Buffer, Message, Op
from pserver.transport import Connection, Frames, Place, linger

RECONNECT_INTERVAL = 0.1  # seconds
_UNDER_WAY = (errno.EINPROGRESS, errno.EAGAIN)


def new_memory(frames: Sequence[Buffer], size: int) -> list[memoryview]:
    """Return fresh memory for a payload."""
    return [memoryview(bytearray(size))]


class Link:
    """A connection to one service.

    What is sent before it is there goes out when it is; what was on its way when it breaks is lost.

    Args: name: of the connection, chosen by this side; the service answers to it.  place: see `Connection`.
        max_payload: longest payload that may come.
    """

    def __init__(
        self,
        host: str,
        port: int,
        name: bytes,
        place: Place = new_memory,
        *,
        max_payload: int = 0,
    ) -> None:
        self.host, self.port = host, port
        self.connection: Connection | None = None
        self.closed: float | None = None  # since when there is no connection; None: there is one, or the first comes
        self.breaks = 0  # how often a connection was lost
        self.place, self._max_payload = place, max_payload
        self._hail = protocol.encode(Message(Op.CONNECT, bytes(8), -1, 0, note={"connection": name.hex()}))
        self._waiting: list[Sequence[Buffer]] = []
        self._coming: socket.socket | None = None  # it connects
        self._due = 0.0  # when to connect again

    def __del__(self) -> None:
        self.close()

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message as soon as possible; payloads are not copied, and must stay as they are until they left."""
        if self.connection is None:
            self._waiting.append(frames)
            return
        try:
            self.connection.send(frames)
        except OSError:
            self._break()

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the connection."""
        return len(self._waiting)

    def close(self) -> None:
        """Close it, for good; what has not left is lost."""
        for stream in (self._coming, self.connection):
            if stream is not None:
                stream.close()
        self._coming = self.connection = None
        self._due = float("inf")

    # ----- For `wait` -----

    def begin(self, now: float) -> float:
        """Begin to connect when that is due; return the seconds until it is."""
        if self.connection is not None or self._coming is not None:
            return float("inf")
        if now < self._due:
            return self._due - now
        self._due = now + RECONNECT_INTERVAL
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            family, kind, number, _, address = found[0]
            self._coming = socket.socket(family, kind, number)
            self._coming.setblocking(False)
            code = self._coming.connect_ex(address)
            if code not in (0, *_UNDER_WAY):
                raise OSError(code, os.strerror(code))
        except OSError:
            self._break()
            return RECONNECT_INTERVAL
        return float("inf")

    @property
    def awaited(self) -> tuple[int, int] | None:
        """The file and the events that it waits for."""
        if self._coming is not None:
            return self._coming.fileno(), select.POLLOUT
        if self.connection is None:
            return None
        return self.connection.stream.fileno(), select.POLLIN | (select.POLLOUT if self.connection.unsent else 0)

    def handle(self, events: int) -> list[Frames]:
        """Do what an event asks for; return the messages that are complete."""
        try:
            if self._coming is not None:
                self._open(self._coming)
            connection = self.connection
            if connection is None:
                return []
            if events & select.POLLOUT:
                connection.flush()
            messages = connection.receive() if events & ~select.POLLOUT else []
        except (OSError, EOFError):
            self._break()
            return []
        if connection.fault:
            self._break()
        return messages

    def _open(self, stream: socket.socket) -> None:
        code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._coming, self.closed = None, None
        self.connection = Connection(
            stream, self.place, max_note=protocol.MAX_NOTE_BYTES, max_payload=self._max_payload
        )
        waiting, self._waiting = self._waiting, []
        for frames in (self._hail, *waiting):
            self.connection.send(frames)

    def _break(self) -> None:
        self.breaks += self.connection is not None
        if self.closed is None:
            self.closed = time.monotonic()
        for stream in (self._coming, self.connection):
            if stream is not None:
                stream.close()
        self._coming = self.connection = None


class Watch:
    """Waits for some links, and keeps all of them going.

    What it polls for is told to the poller only when it changes: in a small round that would take as long as the rest.

    Args: wake: a file that ends the waiting when it can be read.
    """

    def __init__(self, links: Sequence[Link], wake: int | None = None) -> None:
        self._links = links
        self._poller = select.poll()
        self._awaited: list[tuple[int, int] | None] = [None] * len(links)
        self._of_file: dict[int, Link] = {}
        if wake is not None:
            self._poller.register(wake, select.POLLIN)

    def wait(self, timeout: float) -> list[tuple[Link, list[Frames]]]:
        """Return what has come, after so many seconds at the latest."""
        now = time.monotonic()
        for number, link in enumerate(self._links):
            timeout = min(timeout, link.begin(now))
            awaited = link.awaited
            if awaited != self._awaited[number]:
                self._change(number, awaited)
        ready = self._poller.poll(1000 * timeout)
        of_file = self._of_file
        come = [(of_file[file], of_file[file].handle(events)) for file, events in ready if file in of_file]
        return [(link, messages) for link, messages in come if messages]

    def _change(self, number: int, awaited: tuple[int, int] | None) -> None:
        link, before = self._links[number], self._awaited[number]
        # a file that was closed may be another link's by now
        if before is not None and self._of_file.get(before[0]) is link and (awaited is None or before[0] != awaited[0]):
            del self._of_file[before[0]]
            self._poller.unregister(before[0])
        if awaited is not None:
            self._of_file[awaited[0]] = link
            self._poller.register(*awaited)
        self._awaited[number] = awaited


def close_all(links: Sequence[Link], seconds: float) -> None:
    """Close links when what was sent has been read by the other side, or after so many seconds."""
    linger([link.connection for link in links if link.connection is not None], seconds)
    for link in links:
        link.close()

"""One listening port of a server: its connections, who they are, and what may come over them."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from pserver import protocol
from pserver.door import Outgoing
from pserver.errors import ConfigError, PortInUseError
from pserver.membership import DATA, TOKEN_BYTES
from pserver.protocol import Buffer, Op, ProtocolError
from pserver.service import Service
from pserver.transport import STRANGER_NOTE_BYTES, Connection, Frames, Pool, Traffic, linger

STRANGER_S = 10.0  # to join in; a probe has long been answered
MOST_STRANGERS = 256  # connections that have not joined; one more, and the oldest goes
MOST_UNSENT = 4096  # parts of messages that a client may leave unread before it is not read either
ACCEPTS_PER_TURN = 64
_MOST_NAME_BYTES = 64


@dataclass(eq=False)
class Caller:
    """A connection and what is known of its other side."""

    connection: Connection
    file: int
    address: str
    name: bytes  # what it answers to
    since: float
    is_named: bool = False
    has_joined: bool = False
    is_leaving: bool = False  # nothing is taken from it any more; it gets the time to read why
    events: int = select.EPOLLIN


class Port:
    """Accepts, reads and sends for one service.

    Args: poller: of the process; what is registered there is told by its file.  backlog: connections that may wait to
        be accepted.  send_buffer, receive_buffer: bytes; 0: the system's choice.
    Raises: PortInUseError, ConfigError: it cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        service: Service,
        poller: select.epoll,
        *,
        backlog: int,
        send_buffer: int = 0,
        receive_buffer: int = 0,
    ) -> None:
        self.service = service
        self.traffic = Traffic()
        self._poller = poller
        self._pool = Pool()
        self._callers: dict[int, Caller] = {}  # by file
        self._names: dict[bytes, Caller] = {}
        self._strangers: dict[int, Caller] = {}  # by file, the oldest first
        self._count = 0
        self._listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, value in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
                if value:
                    self._listener.setsockopt(socket.SOL_SOCKET, option, value)
            self._listener.bind((host, port))
            self._listener.listen(backlog)
        except OSError as exc:
            self._listener.close()
            if exc.errno == errno.EADDRINUSE:
                raise PortInUseError(f"cannot listen on {host}:{port}: another process holds this port") from exc
            raise ConfigError(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
        self._listener.setblocking(False)
        self.file = self._listener.fileno()
        self._poller.register(self.file, select.EPOLLIN)

    def list_unsent(self) -> list[int]:
        """Return for each connection how many parts of messages wait for its other side; also for other threads."""
        return [caller.connection.unsent for caller in list(self._callers.values())]

    def owns(self, file: int) -> bool:
        """Return whether this file is the listener or a connection of this port."""
        return file == self.file or file in self._callers

    def handle(self, file: int, events: int, now: float) -> None:
        """Do what the poller has found for a file."""
        caller = self._callers.get(file)
        if caller is None:
            self._accept(now)
            return
        try:
            if events & select.EPOLLOUT:
                caller.connection.flush()
            messages = caller.connection.receive() if events & ~select.EPOLLOUT else []
        except (OSError, EOFError):
            self._lose(caller, now)
            return
        for frames in messages:
            self._take(caller, frames, now)
        self._watch(caller)

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Send messages to whom they are addressed; one that went away in between is no error."""
        for name, frames in outgoing:
            caller = self._names.get(name)
            if caller is not None:
                self._send(caller, frames)

    def tidy(self, now: float) -> None:
        """Close the connections of those who had time to join and did not."""
        late = [caller for caller in self._strangers.values() if now - caller.since > STRANGER_S]
        for caller in late:
            self._lose(caller, now)

    def close(self, seconds: float) -> None:
        """Stop listening, let the last messages be read for no longer than this, and close all."""
        self._listener.close()
        linger([caller.connection for caller in self._callers.values()], seconds)
        self._callers.clear()
        self._names.clear()
        self._strangers.clear()

    # ----- Connections -----

    def _accept(self, now: float) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                stream, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM) or not self._strangers:
                    return  # it was gone before it was accepted
                self._close(next(iter(self._strangers.values())))
                continue
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                stream, self._place, max_note=STRANGER_NOTE_BYTES, max_payload=0, traffic=self.traffic
            )
            self._count += 1
            name = self._count.to_bytes(8, "big")  # shorter than any that a caller chooses
            caller = Caller(connection, stream.fileno(), address[0], name, now)
            self._callers[caller.file] = self._names[name] = self._strangers[caller.file] = caller
            self._poller.register(caller.file, caller.events)
            if len(self._strangers) > MOST_STRANGERS:
                self._close(next(iter(self._strangers.values())))

    def _place(self, frames: Sequence[Buffer], size: int) -> list[memoryview]:
        return [self._pool.take(size)]

    def _lose(self, caller: Caller, now: float) -> None:
        """Note that a connection broke."""
        is_known = self._names.get(caller.name) is caller
        self._close(caller)
        if is_known and len(caller.name) == TOKEN_BYTES + 1:
            self.service.suspect(caller.name, now)

    def _close(self, caller: Caller) -> None:
        if self._callers.get(caller.file) is not caller:
            return  # it was closed before
        del self._callers[caller.file]
        self._strangers.pop(caller.file, None)
        if self._names.get(caller.name) is caller:
            del self._names[caller.name]
        with contextlib.suppress(OSError):
            self._poller.unregister(caller.file)
        caller.connection.close()

    # ----- Messages -----

    def _take(self, caller: Caller, frames: Frames, now: float) -> None:
        if caller.is_leaving or caller.file not in self._callers:
            return
        fault = caller.connection.fault
        if fault is not None and len(frames) == 1:
            self._dismiss(caller, str(fault), now)
            return
        if protocol.peek(frames[0])[0] == Op.CONNECT:
            self._name(caller, frames, now)
        else:
            self.send(self.service.handle(caller.name, caller.address, frames, now))
        if not caller.has_joined and self.service.knows(caller.name):
            caller.has_joined = True
            self._strangers.pop(caller.file, None)
            if caller.name[TOKEN_BYTES:] == DATA:
                caller.connection.max_note = protocol.MAX_NOTE_BYTES
                caller.connection.max_payload = protocol.MAX_PAYLOAD_BYTES

    def _name(self, caller: Caller, frames: Frames, now: float) -> None:
        """Give a connection the name that it asks for; one of the same name before it is superseded."""
        try:
            name = bytes.fromhex(str(protocol.decode(frames).note.get("connection")))
        except (ProtocolError, ValueError):
            name = b""
        if not TOKEN_BYTES <= len(name) <= _MOST_NAME_BYTES or caller.is_named:
            self._dismiss(caller, "a CONNECT without a name, or a second one", now)
            return
        before = self._names.get(name)
        if before is not None:
            self._close(before)
        del self._names[caller.name]
        caller.name, caller.is_named = name, True
        self._names[name] = caller

    def _dismiss(self, caller: Caller, reason: str, now: float) -> None:
        """Answer why no more is taken from a connection; it is closed by the other side, or else by `tidy`."""
        self.send(self.service.refuse(caller.name, caller.address, reason, now))
        caller.is_leaving, caller.since = True, now
        self._strangers.pop(caller.file, None)
        self._strangers[caller.file] = caller

    def _send(self, caller: Caller, frames: Sequence[Buffer]) -> None:
        try:
            caller.connection.send(frames)
        except OSError:
            return  # reading finds it, too
        self._watch(caller)

    def _watch(self, caller: Caller) -> None:
        """Poll for what the connection waits for."""
        unsent = caller.connection.unsent
        if caller.is_leaving and not unsent:
            with contextlib.suppress(OSError):
                caller.connection.stream.shutdown(socket.SHUT_WR)
        events = (select.EPOLLOUT if unsent else 0) | (select.EPOLLIN if unsent < MOST_UNSENT else 0)
        if events != caller.events and caller.file in self._callers:
            caller.events = events
            self._poller.modify(caller.file, events)

"""One listening port of a server: its connections, their peers, and the limits of each connection.

A connection has three stages with different limits. At first, its peer is unauthenticated. Then its peer is unjoined:
the peer has proven that it knows the secret, but has not joined. In the last stage, the connection is one of the two
connections of a joined trainer.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import socket
from collections.abc import Iterator, Sequence

from paddle_base.runtime.errors import HELD_PORT, ConfigError, PortInUseError
from paddle_base.runtime.network.open_files import FREE_FILES
from pserver.server.peer import Peer, encode_answer
from pserver.server.round_traffic import RoundTraffic
from pserver.server.service import Service
from pserver.server.trainer_session import Outgoing
from pserver.wire import protocol
from pserver.wire.authentication import DATA, NONCE_BYTES, TOKEN_BYTES, ServerHandshake
from pserver.wire.connection import SCRATCH_BYTES, Connection, ConnectionLimits, Frames, Pool, Traffic, linger
from pserver.wire.protocol import Buffer, Message

ADMISSION_TIMEOUT = 10.0  # maximum seconds until the handshake ends, and then until the peer joins
MAX_UNAUTHENTICATED = 256  # maximum connections in their handshake; a further connection closes the oldest
MAX_UNJOINED = 256  # maximum authenticated connections that have not joined; a further connection closes the oldest
# maximum bytes of a note of an unjoined peer; a hello has less than 1 KiB, and a longer note could exceed SCRATCH_BYTES
UNJOINED_NOTE_BYTES = 8 << 10
MAX_UNSENT = 4096  # maximum unsent parts of messages to a peer; above it, the server stops reading from the peer
ACCEPTS_PER_TURN = 64  # maximum number of connections that are accepted in one iteration of the event loop
# number of reads of discarded data before a connection closes; unread data would reset the connection, and the peer
# could not read the last message
_DUMPS = 4


class Listener:
    """Accepts connections, reads messages and sends messages for one service.

    Args: bound: the socket from `bind_port`, which the listener closes. poller: the poller of the process; it
        identifies a connection by its file descriptor.  backlog: maximum connections that wait to be accepted.
    Raises: PortInUseError, ConfigError: the process cannot listen on the port.
    """

    def __init__(self, bound: socket.socket, service: Service, poller: select.epoll, *, backlog: int) -> None:
        self.service = service
        self.traffic = Traffic()
        self._poller = poller
        self._pool = Pool()
        self._rounds = RoundTraffic(service, self.traffic)
        self._peers: dict[int, Peer] = {}  # by file descriptor
        self._names: dict[bytes, Peer] = {}
        # connections in the handshake or being closed, by file descriptor, the oldest first
        self._unauthenticated: dict[int, Peer] = {}
        self._unjoined: dict[int, Peer] = {}  # connections that have not joined, by file descriptor, the oldest first
        self._dump = bytearray(SCRATCH_BYTES)
        self._socket = bound
        with _bind_errors(bound, "{}:{}".format(*bound.getsockname()[:2])):
            bound.listen(backlog)
            bound.setblocking(False)
        self.file = self._socket.fileno()
        self._poller.register(self.file, select.EPOLLIN)

    def list_unsent(self) -> list[int]:
        """Return the number of unsent parts of messages for each connection; other threads may call this method."""
        return [peer.unsent for peer in list(self._peers.values())]

    def handle_ready(self, ready: Sequence[tuple[int, int]], now: float) -> Sequence[tuple[int, int]]:
        """Read or send on the ready file descriptors of this port; return the events of other ports."""
        arrived, ready = self._rounds.receive(ready)
        if arrived:
            self.send(self.service.handle_pushes(arrived, now))
        others = []
        for one in ready:
            file, events = one
            if file in self._peers or file == self.file:
                self.handle(file, events, now)
            else:
                others.append(one)
        return others

    def handle(self, file: int, events: int, now: float) -> None:
        """Read or send on a ready file descriptor."""
        peer = self._peers.get(file)
        if peer is None:
            self._accept(now)
            return
        try:
            self._handle(peer, events, now)
        except (OSError, EOFError):
            self._lose(peer, now)
        except Exception as exc:  # an unexpected error ends the connection but not the server
            self.service.sessions.complaints.count_failure(peer.address, "message", exc, now)
            self._lose(peer, now)

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Send each message to the connection with the given name; None instead of a message closes the connection.

        The names of closed connections are ignored.
        """
        for name, message in self._rounds.send(outgoing, self._watch):
            peer = self._names.get(name)
            if peer is not None and message is None:
                self._dismiss(peer)
            elif peer is not None and message is not None:
                self._send(peer, message)
                self._rounds.foresee(peer, message)

    def tidy(self, now: float) -> None:
        """Close the connections of peers that have not joined in time, and listen if no descriptor was free."""
        self._poller.modify(self.file, select.EPOLLIN)
        late = [
            peer
            for stage in (self._unauthenticated, self._unjoined)
            for peer in stage.values()
            if now - peer.since > ADMISSION_TIMEOUT
        ]
        for peer in late:
            self._lose(peer, now)

    def close(self, seconds: float) -> None:
        """Stop listening, wait at most `seconds` until the last messages are sent, and close all connections."""
        self._socket.close()
        for peer in self._peers.values():
            if peer.connection is None:
                peer.stream.close()
        linger([peer.connection for peer in self._peers.values() if peer.connection is not None], seconds)
        for some in (self._peers, self._names, self._unauthenticated, self._unjoined):
            some.clear()

    # ----- Connections -----

    def _accept(self, now: float) -> None:
        # bounded, because a flood of connections must not hold up the joined trainers
        for number in range(ACCEPTS_PER_TURN):
            try:
                stream, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                others = self._unauthenticated or self._unjoined
                # without a free descriptor the connection stays in the queue, and `poll` would report it without end
                # after the first connection, perhaps none waits; otherwise it was closed before it was accepted
                if number or exc.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    return
                if others:
                    self._close(next(iter(others.values())))
                else:
                    self._poller.modify(self.file, 0)  # until `tidy`; the loop would turn without a rest
                return
            if not FREE_FILES.take(1):
                others = self._unauthenticated or self._unjoined
                if not others:
                    stream.close()
                    continue
                self._close(next(iter(others.values())))
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake = ServerHandshake(self.service.identity.secret, secrets.token_bytes(NONCE_BYTES))
            peer = Peer(stream, stream.fileno(), address[0], now, handshake)
            self._peers[peer.file] = self._unauthenticated[peer.file] = peer
            try:
                self._poller.register(peer.file, peer.events)
            except OSError:  # the kernel watches no more descriptors
                self._close(peer)
                return
            if len(self._unauthenticated) > MAX_UNAUTHENTICATED:
                self._close(next(iter(self._unauthenticated.values())))

    def _shake(self, peer: Peer, now: float) -> None:
        """Continue a handshake.

        Raises: OSError, EOFError: the connection is broken.
        """
        handshake = peer.handshake
        with contextlib.suppress(BlockingIOError):
            while handshake.wanted:
                data = peer.stream.recv(handshake.wanted)
                if not data:
                    raise EOFError("closed by the other side")
                self.traffic.received += len(data)
                # `send` takes all bytes, because the send buffer of a new stream has room for them
                self.traffic.sent += peer.stream.send(handshake.feed(data))
        if handshake.fault:
            self.service.sessions.complaints.count_malformed(peer.address, handshake.fault, now)
            peer.since = now
            self._dismiss(peer)
            self._watch(peer)
        elif not handshake.wanted:
            self._welcome(peer, now)

    def _welcome(self, peer: Peer, now: float) -> None:
        """Start to read messages from a connection, which replaces an earlier connection with the same name."""
        limits = ConnectionLimits(UNJOINED_NOTE_BYTES, 0)
        peer.connection = Connection(peer.stream, self._place, limits, traffic=self.traffic)
        peer.since = now
        del self._unauthenticated[peer.file]
        before = self._names.get(peer.name)
        if before is not None:
            self._close(before)
        self._names[peer.name] = self._unjoined[peer.file] = peer
        self._note_joining(peer)
        if len(self._unjoined) > MAX_UNJOINED:
            self._close(next(iter(self._unjoined.values())))

    def _note_joining(self, peer: Peer) -> None:
        """Raise the limits of a connection that belongs to a joined trainer."""
        if peer.has_joined or peer.connection is None or not self.service.sessions.knows(peer.name):
            return
        peer.has_joined = True
        self._unjoined.pop(peer.file, None)
        is_data = peer.name[TOKEN_BYTES:] == DATA
        full = ConnectionLimits(protocol.MAX_NOTE_BYTES, protocol.MAX_PAYLOAD_BYTES)
        peer.connection.limits = full if is_data else ConnectionLimits(protocol.SMALL_NOTE_BYTES, 0)

    def _place(self, frames: Sequence[Buffer], size: int) -> list[memoryview]:
        return [self._pool.take(size)]

    def _lose(self, peer: Peer, now: float) -> None:
        """Close a broken connection, and record that its trainer may be lost."""
        is_known = self._names.get(peer.name) is peer
        self._close(peer)
        if is_known:
            self.service.sessions.suspect(peer.name, now)

    def _close(self, peer: Peer) -> None:
        if self._peers.get(peer.file) is not peer:
            return  # the connection was closed before
        del self._peers[peer.file]
        self._rounds.forget(peer)
        for stage in (self._unauthenticated, self._unjoined):
            stage.pop(peer.file, None)
        if self._names.get(peer.name) is peer:
            del self._names[peer.name]
        with contextlib.suppress(OSError):
            self._poller.unregister(peer.file)
        if peer.is_leaving:
            with contextlib.suppress(OSError):
                for _ in range(_DUMPS):
                    if not peer.stream.recv_into(self._dump):
                        break
        peer.stream.close()

    # ----- Messages -----

    def _handle(self, peer: Peer, events: int, now: float) -> None:
        """Read and send.

        Raises: OSError, EOFError: the connection is broken.
        """
        if peer.is_leaving and not peer.unsent:
            raise EOFError("the peer has read the last message")  # the poller reports only this event
        connection = peer.connection
        if connection is None:
            self._shake(peer, now)
            return
        if events & select.EPOLLOUT:
            connection.flush()
        if events & ~select.EPOLLOUT and not peer.is_leaving:
            for frames in self._rounds.hand_back(peer):
                self._take(peer, connection, frames, now)
            for frames in connection.receive():
                self._take(peer, connection, frames, now)
            if connection.fault:
                self.service.sessions.complaints.count_malformed(peer.address, connection.fault, now)
                self._lose(peer, now)
        self._watch(peer)

    def _take(self, peer: Peer, connection: Connection, frames: Frames, now: float) -> None:
        if peer.is_leaving or self._peers.get(peer.file) is not peer:
            return
        if peer.has_asked and not peer.has_joined:
            self._close(peer)  # an unjoined peer may send only one request
            return
        peer.has_asked = True
        self.send(self.service.handle(peer.name, peer.address, frames, now, peer.handshake.keys.receiving))
        self._note_joining(peer)

    def _dismiss(self, peer: Peer) -> None:
        """Stop reading from a connection; the peer or `tidy` closes the connection."""
        if self._peers.get(peer.file) is not peer:
            return
        peer.is_leaving = True
        self._rounds.forget(peer)
        for stage in (self._unauthenticated, self._unjoined):
            stage.pop(peer.file, None)
        self._unauthenticated[peer.file] = peer
        self._watch(peer)

    def _send(self, peer: Peer, message: Message) -> None:
        if peer.connection is None or peer.is_leaving:
            return
        try:
            peer.connection.send(encode_answer(message, peer.handshake.keys.sending))
        except OSError:
            return  # the next read finds the same error
        self._watch(peer)

    def _watch(self, peer: Peer) -> None:
        """Poll for the events of the connection; the poller always reports a broken connection."""
        if self._peers.get(peer.file) is not peer:
            return
        unsent = peer.unsent
        events = select.EPOLLOUT if unsent else 0
        if peer.is_leaving and not unsent:
            with contextlib.suppress(OSError):
                peer.stream.shutdown(socket.SHUT_WR)
        elif not peer.is_leaving and unsent < MAX_UNSENT:
            events |= select.EPOLLIN
        if events != peer.events:
            peer.events = events
            self._poller.modify(peer.file, events)


def bind_port(host: str, port: int, send_buffer: int = 0, receive_buffer: int = 0) -> socket.socket:
    """Return a socket that owns a port but does not accept connections yet.

    Args: port: port number; 0: any free port. send_buffer, receive_buffer: sizes of each connection's buffers in bytes;
        0: the system's choice.
    Raises: PortInUseError, ConfigError: the port is not available.
    """
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    with _bind_errors(made, f"{host}:{port}"):
        # with SO_REUSEADDR and port 0, the system might choose the port of another socket that does not listen yet
        if port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, value in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if value:
                made.setsockopt(socket.SOL_SOCKET, option, value)
        made.bind((host, port))
    return made


@contextlib.contextmanager
def _bind_errors(made: socket.socket, what: str) -> Iterator[None]:
    """Close the socket and raise an error if the system refuses the port."""
    try:
        yield
    except OSError as exc:
        made.close()
        if exc.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"cannot listen on {what}: {HELD_PORT}; end it, or set another --port (in a Job: CONF_PADDLE_PORT)"
            ) from exc
        raise ConfigError(f"cannot listen on {what}: {exc.strerror or exc}") from exc

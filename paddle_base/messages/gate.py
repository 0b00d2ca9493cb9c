"""A gate between the network and libzmq, which bounds the resources that unauthenticated peers can use.

libzmq accepts every connection, keeps it for the handshake interval, and allocates 1 MiB for it. 2,000 connections
exhaust the file descriptors of the process and 2 GB of memory. Therefore the gate, and not libzmq, listens on the port.
The gate accepts a bounded number of connections, and checks their first bytes (see `zmtp`). For each connection, the
gate opens a local connection to libzmq that only this process may use. The gate then copies bytes between the two
connections, and reads from one side only as fast as the other side reads.

One thread serves all connections. A connection uses three file descriptors: the peer's socket, and both ends of the
local connection to libzmq. The local connection begins after the peer has sent its signature.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import selectors
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from paddle_base.messages.zmtp import REFUSED_PROOF, PeerBytes, ServerBytes, ZmtpError
from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.network.open_files import FREE_FILES, limit_of_files, make_room
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from paddle_base.runtime.wakeup import WakeUp

READ_BYTES = 1 << 16  # maximum bytes of one read, and of the buffer for a side that does not read
ACCEPTED_AT_ONCE = 8  # maximum connections that are accepted before existing connections are served again
PAUSE_S = 0.1  # seconds without accepting connections after the process ran out of file descriptors
LISTEN_BACKLOG = 128  # maximum connections that the kernel queues for this port
FILES_OF_A_CONNECTION = 3  # file descriptors: the peer's socket, and both ends of the local connection to libzmq
FEW_FILES = "the process has too few file descriptors left"
RESET = struct.pack("ii", 1, 0)  # value of SO_LINGER by which the kernel forgets a closed connection at once


@dataclass(frozen=True)
class GateLimits:
    """The limits of the gate.

    unauthenticated: maximum connections before authentication; a further connection closes the oldest.
    peers: maximum authenticated connections; a further connection is refused.
    handshake: maximum seconds until a connection is authenticated.
    """

    unauthenticated: int = 128
    peers: int = 4096
    handshake: float = 10.0

    @property
    def files(self) -> int:
        """Number of file descriptors that so many connections use."""
        return FILES_OF_A_CONNECTION * (self.unauthenticated + self.peers)

    def fit(self, note: Callable[[str], None]) -> GateLimits:
        """Return these limits, or lower ones if the process may not have so many file descriptors; `note` says it.

        Raises: ConfigError: see `make_room`.
        """
        files = make_room(self.files)
        if files >= self.files:
            return self
        connections = files // FILES_OF_A_CONNECTION
        unauthenticated = min(self.unauthenticated, max(1, connections // 4))
        fitting = GateLimits(unauthenticated, connections - unauthenticated, self.handshake)
        note(
            f"the limit of {limit_of_files()} open files lets this program have {fitting.peers} members and "
            f"{unauthenticated} connections before authentication, instead of {self.peers} and {self.unauthenticated}; "
            "ulimit -n raises it"
        )
        return fitting


class _Passage:
    """A connection: the peer's socket, libzmq's socket, and the bytes that are not forwarded yet."""

    def __init__(self, outer: socket.socket, address: str, mechanism: bytes, deadline: float) -> None:
        self.outer, self.address, self.deadline = outer, address, deadline
        self.inner: socket.socket | None = None  # local socket to libzmq; None: no signature of the peer has arrived
        self.to_inner, self.to_outer = b"", b""
        self.peer, self.server = PeerBytes(mechanism), ServerBytes()
        self.watched: dict[socket.socket, int] = {}  # the awaited events of each socket
        self.is_answered = False  # libzmq has sent bytes, and has therefore accepted the connection
        self.is_ending = False  # libzmq has closed the connection; the gate still sends its last bytes to the peer

    @property
    def is_closed(self) -> bool:
        """Whether the gate has closed the connection; events of it may still be in the list of this loop turn."""
        return self.outer.fileno() < 0


@dataclass(frozen=True)
class GateTarget:
    """The target of accepted connections.

    inner: name of libzmq's abstract socket.  mechanism: NULL or CURVE.  admits: returns whether a peer at this address
    may connect.
    """

    inner: str
    mechanism: bytes
    admits: Callable[[str], bool]


class Refusals:
    """Count refused connections by reason, and log each reason at most once in PROBLEM_LINE_S seconds.

    Args: note: writes a line to the log.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._note = note
        self._lines = RateLimit(PROBLEM_LINE_S)

    def add(self, code: str, text: str) -> None:
        """Count one refusal."""
        self.counts[code] += 1
        if self._lines.is_due(time.monotonic(), code):
            self._note(f"a connection is refused ({self.counts[code]} for this reason so far): {text}")


class Gate:
    """The listening port of one server, in front of libzmq.

    Args: listener: a listening socket.  refusals: the counter of refused connections.
    """

    def __init__(self, listener: socket.socket, target: GateTarget, limits: GateLimits, refusals: Refusals) -> None:
        self._listener, self._target, self._limits, self._refusals = listener, target, limits, refusals
        self._unauthenticated: dict[_Passage, None] = {}  # the oldest first
        self._peers: set[_Passage] = set()
        self._selector = selectors.DefaultSelector()
        self._resume = 0.0  # time at which the gate accepts connections again; 0: the gate accepts now
        self._is_closing = False
        self._wakeup = WakeUp()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._thread = ServiceThread(self._run, "messages-gate")
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Send libzmq's last bytes for at most `seconds`, and stop."""
        self._wakeup.call()
        self._thread.join(seconds)
        self._is_closing = True
        self._wakeup.call()
        self._thread.join()
        self._wakeup.close()

    # ----- The thread -----

    def _run(self) -> None:
        try:
            while not self._is_closing and (self._listener.fileno() >= 0 or self._unauthenticated or self._peers):
                self._turn()
        finally:
            for passage in [*self._unauthenticated, *self._peers]:
                self._close(passage)
            self._listener.close()
            self._selector.close()

    def _turn(self) -> None:
        now = time.monotonic()
        oldest = next(iter(self._unauthenticated), None)
        due = [*([oldest.deadline] if oldest else []), *([self._resume] if self._resume else [])]
        events = self._selector.select(max(0.0, min(due) - now) if due else None)
        for key, mask in events:
            if key.fileobj is self._listener:
                if self._listener.fileno() >= 0:  # an earlier event of this loop turn may have closed the listener
                    self._accept()
            elif key.fileobj is self._wakeup:
                self._stop_listening()
            elif not key.data.is_closed:  # an earlier event of this loop turn may have closed the connection
                self._serve(key.data, key.fileobj is key.data.outer, mask)
        now = time.monotonic()
        if self._resume and now >= self._resume and self._listener.fileno() >= 0:
            self._resume = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        # the oldest comes first, and so does its deadline
        for passage in list(self._unauthenticated):
            if now < passage.deadline:
                break
            self._refuse(passage, "late", "the handshake has taken too long")

    def _stop_listening(self) -> None:
        self._wakeup.clear()
        for passage in list(self._unauthenticated):
            self._close(passage)
        if self._listener.fileno() >= 0 and not self._resume:
            self._selector.unregister(self._listener)
        self._resume = 0.0
        self._listener.close()

    def _accept(self) -> None:
        for number in range(ACCEPTED_AT_ONCE):
            try:
                outer, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as exc:  # no free file descriptor; after the first connection, perhaps none waits
                if not number and not self._make_room("descriptors", FEW_FILES):
                    self._pause(str(exc.strerror))
                return
            coming = partial(count_coming, self._unauthenticated)
            if FREE_FILES.take(FILES_OF_A_CONNECTION - 1, coming) or self._make_room("descriptors", FEW_FILES):
                self._begin(outer, str(address[0]).removeprefix("::ffff:"))
            else:
                self._refusals.add("descriptors", FEW_FILES)
                outer.close()

    def _pause(self, reason: str) -> None:
        """Stop accepting for PAUSE_S seconds."""
        self._refusals.add("descriptors", f"no connection can be accepted: {reason}")
        self._selector.unregister(self._listener)
        self._resume = time.monotonic() + PAUSE_S

    def _begin(self, outer: socket.socket, address: str) -> None:
        """Start a connection if its address and the number of connections permit it."""
        passage = _Passage(outer, address, self._target.mechanism, time.monotonic() + self._limits.handshake)
        with self._guarded(passage):
            outer.setblocking(False)
            if not self._target.admits(address):
                self._refuse(passage, "address", "the address does not belong to this job")
                return
            if len(self._unauthenticated) >= self._limits.unauthenticated:
                self._make_room("crowd", "too many handshakes are unfinished")
            outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._unauthenticated[passage] = None
            self._set_events(outer, passage, selectors.EVENT_READ)

    def _make_room(self, code: str, reason: str) -> bool:
        """Close an unauthenticated connection; return False without any."""
        idlest = find_idlest(self._unauthenticated)
        if idlest is not None:
            self._refuse(idlest, code, reason)
        return idlest is not None

    def _serve(self, passage: _Passage, is_outer: bool, mask: int) -> None:
        """Forward the bytes of one side as far as the other side has room."""
        with self._guarded(passage):
            try:
                if mask & selectors.EVENT_WRITE:
                    self._flush(passage)
                if mask & selectors.EVENT_READ and is_outer:
                    self._read_outer(passage)
                elif mask & selectors.EVENT_READ and passage.inner is not None:
                    self._read_inner(passage, passage.inner)
            except (BlockingIOError, InterruptedError):
                return
            except ZmtpError as exc:
                if exc.code != "mechanism":
                    raise
                self._part(passage, exc.code, str(exc), passage.server.rest_of_greeting(self._target.mechanism))
            if passage.is_ending and not passage.to_outer:
                self._close(passage)
            else:
                self._watch(passage)

    @contextlib.contextmanager
    def _guarded(self, passage: _Passage) -> Iterator[None]:
        """Close one connection after any error about it, for an error must not end the gate of all others."""
        try:
            yield
        except ZmtpError as exc:
            self._refuse(passage, exc.code, str(exc))
        except OSError:
            self._close(passage)
        except Exception as exc:
            self._refuse(passage, "failed", f"a bug of this program: {''.join(traceback.format_exception(exc))}")

    def _read_outer(self, passage: _Passage) -> None:
        data = passage.outer.recv(READ_BYTES if passage.peer.is_let_in else 4096)
        if not data:
            raise ConnectionError("the peer has ended the connection")
        passage.peer.feed(data)
        self._let_in(passage)  # before libzmq gets a message that came with the last bytes of the handshake
        passage.to_inner += data
        if passage.inner is None and passage.peer.has_signed:
            passage.inner = self._connect()
            self._set_events(passage.inner, passage, selectors.EVENT_READ)
        self._flush(passage)

    def _connect(self) -> socket.socket:
        """Open a local connection to libzmq, and return it."""
        inner = socket.socket(socket.AF_UNIX)
        inner.setblocking(False)
        try:
            if not FREE_FILES.take(1, partial(count_coming, self._unauthenticated)):  # libzmq opens one when it accepts
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            inner.connect("\0" + self._target.inner)
        except OSError as exc:  # EAGAIN means that the queue of connections to libzmq is full
            inner.close()
            raise ConnectionError(f"libzmq accepts no connection: {exc.strerror}") from exc
        return inner

    def _read_inner(self, passage: _Passage, inner: socket.socket) -> None:
        data = inner.recv(READ_BYTES)
        if not data:
            if passage.peer.said_hello and not passage.server.has_welcomed:
                reason = "the peer has another secret: PADDLE_SECRET must be the same for all programs of a job"
                self._part(passage, "secret", reason, REFUSED_PROOF)
            passage.is_ending = True
            return
        passage.is_answered = True
        passage.server.feed(data)
        passage.peer.has_agreed = passage.server.is_ready
        passage.to_outer += data
        self._flush(passage)
        self._let_in(passage)

    def _let_in(self, passage: _Passage) -> None:
        if passage in self._peers or not passage.peer.is_let_in:
            return
        if len(self._peers) >= self._limits.peers:
            raise ZmtpError("full", f"{self._limits.peers} connections are authenticated already")
        self._unauthenticated.pop(passage, None)
        self._peers.add(passage)

    def _flush(self, passage: _Passage) -> None:
        with contextlib.suppress(BlockingIOError):
            if passage.to_inner and passage.inner is not None:
                passage.to_inner = passage.to_inner[passage.inner.send(passage.to_inner) :]
        with contextlib.suppress(BlockingIOError):
            if passage.to_outer:
                passage.to_outer = passage.to_outer[passage.outer.send(passage.to_outer) :]

    def _watch(self, passage: _Passage) -> None:
        """Select the events to wait for. Read from one side only if the buffer for the other side is empty."""
        # before the signature is whole there is no inner connection yet; `PeerBytes` bounds what waits for it
        reads_outer = (passage.inner is None or not passage.to_inner) and not passage.is_ending
        wanted = selectors.EVENT_READ * reads_outer | selectors.EVENT_WRITE * bool(passage.to_outer)
        self._set_events(passage.outer, passage, wanted)
        if passage.inner is not None:
            reads_inner = not passage.to_outer and not passage.is_ending
            wanted = selectors.EVENT_READ * reads_inner | selectors.EVENT_WRITE * bool(passage.to_inner)
            self._set_events(passage.inner, passage, wanted)

    def _set_events(self, stream: socket.socket, passage: _Passage, wanted: int) -> None:
        known = passage.watched.get(stream, 0)
        passage.watched[stream] = wanted
        if wanted and not known:
            self._selector.register(stream, wanted, passage)
        elif known and not wanted:
            self._selector.unregister(stream)
        elif known != wanted:
            self._selector.modify(stream, wanted, passage)

    def _part(self, passage: _Passage, code: str, reason: str, last: bytes) -> None:
        """Refuse a connection, after the bytes `last`, which give the reason to the peer's libzmq."""
        self._refusals.add(code, f"{passage.address}: {reason}")
        passage.to_outer += last
        passage.is_ending = True
        self._flush(passage)

    def _refuse(self, passage: _Passage, code: str, reason: str) -> None:
        self._refusals.add(code, f"{passage.address}: {reason}")
        with contextlib.suppress(OSError):
            passage.outer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._close(passage)

    def _close(self, passage: _Passage) -> None:
        self._unauthenticated.pop(passage, None)
        self._peers.discard(passage)
        for stream in (passage.outer, passage.inner):
            if stream is not None and stream.fileno() >= 0:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                stream.close()


def find_idlest(unauthenticated: Iterable[_Passage]) -> _Passage | None:
    """Return the oldest connection, if possible one whose peer has not shown that it knows the server's key."""
    candidates = list(unauthenticated)
    return next((one for one in candidates if not one.server.has_welcomed), next(iter(candidates), None))


def count_coming(unauthenticated: Iterable[_Passage]) -> int:
    """Return how many descriptors these connections will open that are not open yet."""
    return sum(FILES_OF_A_CONNECTION - 1 if one.inner is None else not one.is_answered for one in unauthenticated)

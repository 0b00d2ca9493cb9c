"""The front of an HTTP server: it reads a request's head before a thread or much memory is spent on the connection.

A server that starts a thread for every connection gives a stranger as many threads and file descriptors as the stranger
has connections. The front accepts all connections in one thread. It waits for the head of a request, asks the server's
`judge` whether the head proves enough, and only then serves the request in a thread. A short answer, such as that of a
health page, needs no thread: the front itself sends it. A connection that has been served may stay open for the next
request of its client: under a flood of new connections, the old ones still work.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from http import HTTPStatus
from typing import Any, NamedTuple

from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.network.open_files import FREE_FILES
from paddle_base.runtime.wakeup import WakeUp

READ_BYTES = 4096
ACCEPTED_AT_ONCE = 64  # maximum connections that are accepted before existing ones are read again
PAUSE_S = 0.1  # seconds without accepting connections after the process ran out of file descriptors


class FrontLimits(NamedTuple):
    """The limits of a front.

    - unproven: connections without a proven request; one more closes the oldest.
    - of_address: unproven connections from one address; one more closes the oldest of them.
    - proven: requests that are served at the same time, and connections that wait for their next request; one more
      closes the connection that has waited longest, or is closed itself.
    - head_bytes: bytes of the head of a request.
    - head_s: seconds until the head has arrived, and until the answer of a refused request is sent.
    - idle_s: seconds that a connection may wait for its next request.
    - may_use_spare: whether the connections may take the descriptors that the process keeps free (`open_files`). Then
      there must be fewer connections than such descriptors.
    """

    unproven: int = 128
    of_address: int = 64
    proven: int = 4096
    head_bytes: int = 8 << 10
    head_s: float = 10.0
    idle_s: float = 75.0
    may_use_spare: bool = False


class Admitted(NamedTuple):
    """A head that proves enough; `facts` is what the server wants to know about it when it serves the request."""

    facts: Any


class Refused(NamedTuple):
    """A head that gets no thread, and the bytes that are sent before the connection is closed."""

    answer: bytes


def has_head(data: bytes) -> bool:
    """Return whether these bytes contain the whole head of a request of HTTP/1."""
    return b"\n\r\n" in data or b"\n\n" in data


def find_length(headers: Message, default: str = "0") -> int | None:
    """Return the bytes of the body of a request, or None if the headers do not give one length.

    What a server does not read of a body would be the next request on the connection.
    Args: default: the length without a header; empty: there must be one.
    """
    length, *others = headers.get_all("Content-Length", [default])
    is_clear = not others and "Transfer-Encoding" not in headers and re.fullmatch("[0-9]{1,18}", length)
    return int(length) if is_clear else None


def make_answer(
    status: HTTPStatus,
    body: bytes,
    headers: Mapping[str, str] = {},
    *,
    is_head: bool = False,
    is_kept: bool = False,
) -> bytes:
    """Return an answer of HTTP/1.

    Args: is_head: whether the request was a HEAD, whose answer has no body. is_kept: whether the connection stays open
        after the answer.
    """
    lines = [f"HTTP/1.1 {int(status)} {status.phrase}", f"Content-Length: {len(body)}"]
    lines.append(f"Connection: {'keep-alive' if is_kept else 'close'}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else body)


class Waiting:
    """A connection whose next request has not arrived yet."""

    def __init__(self, stream: socket.socket, address: str) -> None:
        self.stream, self.address = stream, address
        self.deadline = 0.0  # of `time.monotonic`; the front closes the connection then
        self.greeting = b""  # what the front has sent first
        self.data = bytearray()  # of a request whose head is incomplete
        self.unsent = memoryview(b"")  # of the answer to a refused request


class FrontHandlers(NamedTuple):
    """What a server does with its connections.

    - judge: returns None while the head of a request is incomplete: (the bytes that have arrived, the greeting).
    - serve: answers a request in a thread, and returns whether the connection stays open: (the connection, its
      address, the bytes that have arrived, the facts of the head).
    - greet: returns the bytes that are sent first on a new connection, for example a challenge.
    - peeks: whether the bytes that the judge sees stay in the connection, where a library of `serve` reads them, such
      as that of TLS. The judge then has to decide about the first byte.
    """

    judge: Callable[[bytes, bytes], Admitted | Refused | None]
    serve: Callable[[socket.socket, str, bytes, Any], bool]
    greet: Callable[[], bytes] = bytes
    peeks: bool = False


class UnprovenConnections:
    """The connections without a proven request, the oldest first, and their number for each address."""

    def __init__(self) -> None:
        self.oldest: dict[Waiting, None] = {}
        self._of_address: Counter[str] = Counter()

    def add(self, waiting: Waiting) -> None:
        """Add the newest connection."""
        self.oldest[waiting] = None
        self._of_address[waiting.address] += 1

    def discard(self, waiting: Waiting) -> None:
        """Remove a connection, if it is there."""
        if waiting in self.oldest:
            del self.oldest[waiting]
            self._of_address[waiting.address] -= 1
            if not self._of_address[waiting.address]:
                del self._of_address[waiting.address]

    def find_excess(self, address: str, limits: FrontLimits) -> Waiting | None:
        """Return the connection that has to go before one more comes from an address, or None."""
        if self._of_address[address] >= limits.of_address:
            return next(one for one in self.oldest if one.address == address)
        return next(iter(self.oldest)) if len(self.oldest) >= limits.unproven else None


class ServedRequests:
    """The number of requests that threads answer, and the connections that they give back to the front."""

    def __init__(self) -> None:
        self.count = 0
        self.given_back: deque[Waiting] = deque()
        self.is_closing = False
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Count one more request."""
        with self._changed:
            self.count += 1

    def end(self, waiting: Waiting | None) -> bool:
        """Count one request less, and give its connection back; return False if the front takes none back any more."""
        with self._changed:
            is_kept = waiting is not None and not self.is_closing
            if waiting is not None and is_kept:
                self.given_back.append(waiting)
            self.count -= 1
            self._changed.notify_all()
            return is_kept

    def close(self) -> None:
        """Take no connection back any more."""
        with self._changed:
            self.is_closing = True

    def wait(self, seconds: float) -> bool:
        """Wait for the requests that are answered now; return whether all are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.count, seconds)


class Front:
    """Accepts the connections of listening sockets until `close`.

    Args: is_vital: whether the program ends if an error of the front itself, and not of a connection, ends the front.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        handlers: FrontHandlers,
        limits: FrontLimits | None = None,
        *,
        is_vital: bool = True,
    ) -> None:
        self._listeners, self._handlers = listeners, handlers
        self._limits = limits or FrontLimits()
        self._unproven = UnprovenConnections()
        self._idle: dict[Waiting, None] = {}  # those that were proven and wait for their next request, the oldest first
        self._served = ServedRequests()
        self._resume = 0.0  # time at which connections are accepted again; 0: they are accepted now
        self._selector = selectors.DefaultSelector()
        self._wakeup = WakeUp()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._listen()
        alone = threading.Thread(target=self._run, name="front", daemon=True)
        self._thread = ServiceThread(self._run, "front") if is_vital else alone
        self._thread.start()

    def close(self, seconds: float = 0.0) -> bool:
        """Close the port, and every connection that is not served just now; further calls only wait.

        Args: seconds: maximum time of waiting for the requests that are answered now.
        Returns: whether all requests are answered.
        """
        self._served.close()
        self._wakeup.call()
        self._thread.join()
        self._wakeup.close()
        return self._served.wait(seconds)

    # ----- The thread of the front -----

    def _run(self) -> None:
        try:
            while not self._served.is_closing:
                self._turn()
        finally:
            for waiting in [*self._unproven.oldest, *self._idle, *self._served.given_back]:
                self._close(waiting)
            for listener in self._listeners:
                listener.close()
            self._selector.close()

    def _turn(self) -> None:
        events = self._selector.select(self._measure_wait())
        now = time.monotonic()  # a request that comes while others are served, however long, is not late
        for key, _ in sorted(events, key=lambda event: event[0].fileobj in self._listeners):  # new ones last
            if key.fileobj in self._listeners:
                self._accept(key.fileobj)  # type: ignore[arg-type]
            elif key.fileobj is self._wakeup:
                self._take_back()
            elif key.data in self._unproven.oldest or key.data in self._idle:  # an earlier event may have closed it
                self._guard(self._flush if key.data.unsent else self._read, key.data)
        if self._resume and now >= self._resume:
            self._resume = 0.0
            self._listen()
        for pool in (self._unproven.oldest, self._idle):
            for waiting in list(pool):
                if now < waiting.deadline:
                    break
                self._close(waiting)

    def _listen(self) -> None:
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def _measure_wait(self) -> float | None:
        """Return the seconds until something is due, or None."""
        oldest = [next(iter(pool)).deadline for pool in (self._unproven.oldest, self._idle) if pool]
        due = [*oldest, *([self._resume] if self._resume else [])]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self, listener: socket.socket) -> None:
        # a turn must not close connections that no turn has read
        most = max(1, min(ACCEPTED_AT_ONCE, self._limits.unproven // 2, self._limits.of_address // 2))
        for number in range(most):
            try:
                stream, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # no free file descriptor; after the first connection, perhaps none waits
                if not number and not self._make_room():
                    self._pause()
                return
            waiting = Waiting(stream, str(address[0]))
            if self._limits.may_use_spare or FREE_FILES.take(1) or self._make_room():
                self._greet_new(waiting)
            else:
                stream.close()

    def _pause(self) -> None:
        if not self._resume:
            for listener in self._listeners:
                self._selector.unregister(listener)
        self._resume = time.monotonic() + PAUSE_S

    def _make_room(self) -> bool:
        """Close the oldest connection without a proven request; return False if there is none."""
        oldest = next(iter(self._unproven.oldest), None)
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _greet_new(self, waiting: Waiting) -> None:
        try:
            waiting.stream.setblocking(False)
            waiting.greeting = self._handlers.greet()
            if waiting.greeting:
                waiting.stream.send(waiting.greeting)
            self._begin(waiting)
        except OSError:
            self._close(waiting)
        else:
            self._guard(self._read, waiting)  # usually the request is there, and is answered whatever comes

    def _begin(self, waiting: Waiting) -> None:
        excess = self._unproven.find_excess(waiting.address, self._limits)
        if excess is not None:
            self._close(excess)
        waiting.deadline = time.monotonic() + self._limits.head_s
        self._unproven.add(waiting)
        self._selector.register(waiting.stream, selectors.EVENT_READ, waiting)

    def _guard(self, step: Callable[[Waiting], None], waiting: Waiting) -> None:
        """Receive or send; an error about one connection ends only this connection."""
        try:
            step(waiting)
        except (BlockingIOError, InterruptedError):
            return
        except Exception:
            self._close(waiting)

    def _read(self, waiting: Waiting) -> None:
        data = waiting.stream.recv(READ_BYTES, socket.MSG_PEEK if self._handlers.peeks else 0)
        if not data:
            self._close(waiting)
            return
        waiting.data += data
        verdict = self._handlers.judge(bytes(waiting.data), waiting.greeting)
        if isinstance(verdict, Admitted):
            self._admit(waiting, verdict.facts)
        elif verdict is None and len(waiting.data) > self._limits.head_bytes:
            self._close(waiting)
        else:
            if waiting in self._idle:  # from now on it has as much time as a new connection
                self._forget(waiting)
                self._begin(waiting)
            if verdict is not None:
                waiting.unsent = memoryview(verdict.answer)
                self._selector.modify(waiting.stream, selectors.EVENT_WRITE, waiting)
                self._flush(waiting)

    def _flush(self, waiting: Waiting) -> None:
        waiting.unsent = waiting.unsent[waiting.stream.send(waiting.unsent) :]
        if not waiting.unsent:
            self._end(waiting)

    def _admit(self, waiting: Waiting, facts: Any) -> None:
        self._forget(waiting)
        if self._served.count + len(self._idle) >= self._limits.proven:
            if not self._idle:
                waiting.stream.close()
                return
            self._close(next(iter(self._idle)))
        data, waiting.data = bytes(waiting.data), bytearray()
        thread = threading.Thread(target=self._answer, args=(waiting, data, facts), name="request", daemon=True)
        self._served.begin()
        try:
            thread.start()
        except RuntimeError:  # the system permits no more threads
            waiting.stream.close()
            self._served.end(None)

    def _take_back(self) -> None:
        self._wakeup.clear()
        while self._served.given_back:
            waiting = self._served.given_back.popleft()
            waiting.deadline = time.monotonic() + self._limits.idle_s
            self._idle[waiting] = None
            try:
                waiting.stream.setblocking(False)
                self._selector.register(waiting.stream, selectors.EVENT_READ, waiting)
            except OSError:  # the kernel watches no more descriptors
                self._close(waiting)

    def _forget(self, waiting: Waiting) -> None:
        self._unproven.discard(waiting)
        self._idle.pop(waiting, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(waiting.stream)

    def _close(self, waiting: Waiting) -> None:
        self._forget(waiting)
        waiting.stream.close()

    def _end(self, waiting: Waiting) -> None:
        """Close a connection; what has been sent still reaches the client, although it may have sent more bytes."""
        with contextlib.suppress(OSError):
            waiting.stream.shutdown(socket.SHUT_WR)
            waiting.stream.recv(READ_BYTES)  # unread bytes would make the kernel reset the connection
        self._close(waiting)

    # ----- The threads of the requests -----

    def _answer(self, waiting: Waiting, data: bytes, facts: Any) -> None:
        is_kept = False
        try:
            waiting.stream.setblocking(True)
            is_kept = self._handlers.serve(waiting.stream, waiting.address, data, facts)
        except OSError:  # the client is gone or silent
            pass
        finally:
            if self._served.end(waiting if is_kept else None):
                self._wakeup.call()
            else:
                with contextlib.suppress(OSError):
                    waiting.stream.shutdown(socket.SHUT_WR)
                waiting.stream.close()

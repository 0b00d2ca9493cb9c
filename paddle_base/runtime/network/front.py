"""The front of a server: it reads the head of each request before a thread or much memory is spent on the connection.

A server that starts a thread for every connection gives a stranger as many threads and file descriptors as the stranger
has connections. The front accepts all connections in one thread. It waits for the head of a request, asks the server's
`judge` whether the head proves enough, and only then serves the request in a thread. A connection that has been served
may stay open for the next request of its client: under a flood of new connections, the old ones still work.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_base.runtime.network.open_files import FREE_FILES

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
    - head_s: seconds until the head has arrived.
    - idle_s: seconds that a connection may wait for its next request.
    """

    unproven: int = 128
    of_address: int = 64
    proven: int = 4096
    head_bytes: int = 8 << 10
    head_s: float = 10.0
    idle_s: float = 75.0


class Admitted(NamedTuple):
    """A head that proves enough; `facts` is what the server wants to know about it when it serves the request."""

    facts: Any


class Refused(NamedTuple):
    """A head that proves nothing, and the bytes that are sent before the connection is closed."""

    answer: bytes


class Waiting:
    """A connection whose next request has not arrived yet."""

    def __init__(self, stream: socket.socket, address: str) -> None:
        self.stream, self.address = stream, address
        self.deadline = 0.0  # of `time.monotonic`; the front closes the connection then
        self.greeting = b""  # what the front has sent first
        self.data = bytearray()  # of a request whose head is incomplete


class FrontHandlers(NamedTuple):
    """What a server does with its connections.

    - judge: returns None while the head of a request is incomplete: (the bytes that have arrived, the greeting).
    - serve: answers a request in a thread, and returns whether the connection stays open: (the connection, its
      address, the bytes that have arrived, the facts of the head).
    - greet: returns the bytes that are sent first on a new connection, for example a challenge.
    """

    judge: Callable[[bytes, bytes], Admitted | Refused | None]
    serve: Callable[[socket.socket, str, bytes, Any], bool]
    greet: Callable[[], bytes] = bytes


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

    def wait(self, seconds: float) -> None:
        """Wait for the requests that are answered now."""
        with self._changed:
            self._changed.wait_for(lambda: not self.count, seconds)


class Front:
    """Accepts the connections of a listening socket until `close`."""

    def __init__(self, listener: socket.socket, handlers: FrontHandlers, limits: FrontLimits | None = None) -> None:
        self._listener, self._handlers = listener, handlers
        self._limits = limits or FrontLimits()
        self._unproven = UnprovenConnections()
        self._idle: dict[Waiting, None] = {}  # those that were proven and wait for their next request, the oldest first
        self._served = ServedRequests()
        self._resume = 0.0  # time at which connections are accepted again; 0: they are accepted now
        self._selector = selectors.DefaultSelector()
        self._wakeup = socket.socketpair()  # the end that the front reads, and the end that wakes it
        for stream in (listener, *self._wakeup):
            stream.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ)
        self._thread = ServiceThread(self._run, "front")
        self._thread.start()

    def close(self, seconds: float = 0.0) -> None:
        """Close the port, and every connection that is not served just now; further calls do nothing.

        Args: seconds: maximum time of waiting for the requests that are answered now.
        """
        self._served.close()
        self._wake()
        self._thread.join()
        self._wakeup[1].close()
        self._served.wait(seconds)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake already
            self._wakeup[1].send(b"x")

    # ----- The thread of the front -----

    def _run(self) -> None:
        try:
            while not self._served.is_closing:
                self._turn()
        finally:
            for waiting in [*self._unproven.oldest, *self._idle, *self._served.given_back]:
                self._close(waiting)
            self._listener.close()
            self._selector.close()
            self._wakeup[0].close()

    def _turn(self) -> None:
        events = self._selector.select(self._measure_wait())
        for key, _ in sorted(events, key=lambda event: event[0].fileobj is self._listener):  # new connections come last
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._wakeup[0]:
                self._take_back()
            elif key.data in self._unproven.oldest or key.data in self._idle:  # an earlier event may have closed it
                self._read(key.data)
        now = time.monotonic()
        if self._resume and now >= self._resume:
            self._resume = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        for pool in (self._unproven.oldest, self._idle):
            for waiting in list(pool):
                if now < waiting.deadline:
                    break
                self._close(waiting)

    def _measure_wait(self) -> float | None:
        """Return the seconds until something is due, or None."""
        oldest = [next(iter(pool)).deadline for pool in (self._unproven.oldest, self._idle) if pool]
        due = [*oldest, *([self._resume] if self._resume else [])]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self) -> None:
        # a turn must not close connections that no turn has read
        most = max(1, min(ACCEPTED_AT_ONCE, self._limits.unproven // 2, self._limits.of_address // 2))
        for _ in range(most):
            try:
                stream, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # no free file descriptor
                self._selector.unregister(self._listener)
                self._resume = time.monotonic() + PAUSE_S
                return
            waiting = Waiting(stream, str(address[0]))
            if FREE_FILES.take(1) or self._make_room():
                self._greet_new(waiting)
            else:
                stream.close()

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
            self._read(waiting)  # usually the request is there already, and gets its answer whatever comes next

    def _begin(self, waiting: Waiting) -> None:
        excess = self._unproven.find_excess(waiting.address, self._limits)
        if excess is not None:
            self._close(excess)
        waiting.deadline = time.monotonic() + self._limits.head_s
        self._unproven.add(waiting)
        self._selector.register(waiting.stream, selectors.EVENT_READ, waiting)

    def _read(self, waiting: Waiting) -> None:
        """Receive bytes; an error about one connection ends only this connection."""
        try:
            data = waiting.stream.recv(READ_BYTES)
            if not data:
                self._close(waiting)
                return
            waiting.data += data
            verdict = self._handlers.judge(bytes(waiting.data), waiting.greeting)
            if verdict is None and len(waiting.data) > self._limits.head_bytes:
                self._close(waiting)
            elif verdict is None and waiting in self._idle:  # from now on it has as much time as a new connection
                self._forget(waiting)
                self._begin(waiting)
            elif isinstance(verdict, Refused):
                waiting.stream.send(verdict.answer)
                self._end(waiting)
            elif verdict is not None:
                self._admit(waiting, verdict.facts)
        except (BlockingIOError, InterruptedError):
            return
        except Exception:
            self._close(waiting)

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
        with contextlib.suppress(BlockingIOError):
            self._wakeup[0].recv(READ_BYTES)
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
                self._wake()
            else:
                with contextlib.suppress(OSError):
                    waiting.stream.shutdown(socket.SHUT_WR)
                waiting.stream.close()

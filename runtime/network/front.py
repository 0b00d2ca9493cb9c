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

from runtime.network.open_files import FreeFiles
from runtime.service_threads import ServiceThread

READ_BYTES = 4096
ACCEPTED_AT_ONCE = 64  # connections that are accepted before existing ones are read again
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


# Returns None while the head of a request is incomplete: (the bytes that have arrived, the greeting that was sent)
Judge = Callable[[bytes, bytes], Admitted | Refused | None]
# Answers a request in a thread, and returns whether the connection stays open: (connection, its address, the bytes
# that have arrived, the facts of its head)
Serve = Callable[[socket.socket, str, bytes, Any], bool]


class Front:
    """Accepts the connections of a listening socket until `close`.

    Args: greet: returns the bytes that are sent first on a new connection, for example a challenge.
    """

    def __init__(
        self,
        listener: socket.socket,
        judge: Judge,
        serve: Serve,
        limits: FrontLimits | None = None,
        greet: Callable[[], bytes] = bytes,
    ) -> None:
        self._listener, self._judge, self._serve, self._greet = listener, judge, serve, greet
        self._limits = limits or FrontLimits()
        self._unproven: dict[Waiting, None] = {}  # the oldest first
        self._of_address: Counter[str] = Counter()  # unproven connections
        self._idle: dict[Waiting, None] = {}  # those that were proven and wait for their next request, the oldest first
        self._serving = 0  # number of requests that are answered now
        self._done: deque[Waiting] = deque()  # from the threads: connections that stay open
        self._files = FreeFiles()
        self._resume = 0.0  # time at which connections are accepted again; 0: they are accepted now
        self._is_closing = False
        self._changed = threading.Condition()  # of `_serving`, `_done` and `_is_closing`
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for stream in (listener, self._woken, self._waker):
            stream.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = ServiceThread(self._run, "front")
        self._thread.start()

    def close(self, seconds: float = 0.0) -> None:
        """Close the port, and every connection that is not served just now; further calls do nothing.

        Args: seconds: maximum time of waiting for the requests that are answered now.
        """
        with self._changed:
            self._is_closing = True
        self._wake()
        self._thread.join()
        self._waker.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._serving, seconds)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread is awake already
            self._waker.send(b"x")

    # ----- The thread of the front -----

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
        finally:
            for waiting in [*self._unproven, *self._idle, *self._done]:
                self._close(waiting)
            self._listener.close()
            self._selector.close()
            self._woken.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._measure_wait()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._take_back()
            elif key.data in self._unproven or key.data in self._idle:  # an earlier event may have closed it
                self._read(key.data)
        now = time.monotonic()
        if self._resume and now >= self._resume:
            self._resume = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)
        for pool in (self._unproven, self._idle):
            for waiting in list(pool):
                if now < waiting.deadline:
                    break
                self._close(waiting)

    def _measure_wait(self) -> float | None:
        """Return the seconds until something is due, or None."""
        oldest = [next(iter(pool)).deadline for pool in (self._unproven, self._idle) if pool]
        due = [*oldest, *([self._resume] if self._resume else [])]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                stream, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # no free file descriptor
                self._selector.unregister(self._listener)
                self._resume = time.monotonic() + PAUSE_S
                return
            if self._files.take(1, lambda: 0):
                self._greet_new(Waiting(stream, str(address[0])))
            else:
                stream.close()

    def _greet_new(self, waiting: Waiting) -> None:
        waiting.stream.setblocking(False)
        waiting.greeting = self._greet()
        try:
            if waiting.greeting:
                waiting.stream.send(waiting.greeting)
        except OSError:
            waiting.stream.close()
        else:
            self._begin(waiting)

    def _begin(self, waiting: Waiting) -> None:
        if self._of_address[waiting.address] >= self._limits.of_address:
            self._close(next(one for one in self._unproven if one.address == waiting.address))
        elif len(self._unproven) >= self._limits.unproven:
            self._close(next(iter(self._unproven)))
        waiting.deadline = time.monotonic() + self._limits.head_s
        self._unproven[waiting] = None
        self._of_address[waiting.address] += 1
        self._selector.register(waiting.stream, selectors.EVENT_READ, waiting)

    def _read(self, waiting: Waiting) -> None:
        """Receive bytes; an error about one connection ends only this connection."""
        try:
            data = waiting.stream.recv(READ_BYTES)
            if not data:
                self._close(waiting)
                return
            waiting.data += data
            verdict = self._judge(bytes(waiting.data), waiting.greeting)
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
        if self._serving + len(self._idle) >= self._limits.proven:
            if not self._idle:
                waiting.stream.close()
                return
            self._close(next(iter(self._idle)))
        data, waiting.data = bytes(waiting.data), bytearray()
        thread = threading.Thread(target=self._answer, args=(waiting, data, facts), name="request", daemon=True)
        with self._changed:
            self._serving += 1
        try:
            thread.start()
        except RuntimeError:  # the system permits no more threads
            waiting.stream.close()
            self._end_service()

    def _take_back(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(READ_BYTES)
        while self._done:
            waiting = self._done.popleft()
            waiting.deadline = time.monotonic() + self._limits.idle_s
            waiting.stream.setblocking(False)
            self._idle[waiting] = None
            self._selector.register(waiting.stream, selectors.EVENT_READ, waiting)

    def _forget(self, waiting: Waiting) -> None:
        if waiting in self._unproven:
            del self._unproven[waiting]
            self._of_address[waiting.address] -= 1
            if not self._of_address[waiting.address]:
                del self._of_address[waiting.address]
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
            is_kept = self._serve(waiting.stream, waiting.address, data, facts)
        except OSError:  # the client is gone or silent
            pass
        finally:
            with self._changed:
                is_kept = is_kept and not self._is_closing
                if is_kept:
                    self._done.append(waiting)
            if is_kept:
                self._wake()
            else:
                with contextlib.suppress(OSError):
                    waiting.stream.shutdown(socket.SHUT_WR)
                waiting.stream.close()
            self._end_service()

    def _end_service(self) -> None:
        with self._changed:
            self._serving -= 1
            self._changed.notify_all()

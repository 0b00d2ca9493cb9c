"""Serves /healthz, /readyz and /metrics of a program, for the pod's probes and for Prometheus (`--metrics_port`).

A separate thread answers requests from values that the program's loop stores. The loop does no work for requests. A
client may be hostile. A request is therefore limited to MOST_HEAD_BYTES and PATIENCE_S. If there are MOST_CALLERS
clients, a new client replaces the oldest. At most ANSWERS_PER_SECOND answers are sent in a second, because more answers
could delay the program's other threads. No error in this module ends the program. If the port is in use, the program
runs without these pages.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.health.metrics import Exposition

MOST_CALLERS = 16
MOST_HEAD_BYTES = 8192
PATIENCE_S = 5.0  # maximum seconds for a client to send its request and to read the answer
ANSWERS_PER_SECOND = 50
PAGE_S = 1.0  # seconds for which a metrics page is reused
TEXT = "text/plain; charset=utf-8"
_END = (b"\r\n\r\n", b"\n\n")


class Answer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    text: str
    kind: str = TEXT

    def encode(self, *, is_head: bool = False) -> bytes:
        """Return the bytes of the whole answer; for a HEAD request, omit the text."""
        body = self.text.encode()
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(["Allow: GET, HEAD"] if self.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else body)


class Pages:
    """The contents of /healthz, /readyz and /metrics.

    Args: why_stuck, why_not_ready: functions that return a problem, or ""; the thread of `Health` calls them.
        metrics: the page for Prometheus; None: there is no such page.
    """

    def __init__(
        self, why_stuck: Callable[[], str], why_not_ready: Callable[[], str], metrics: Exposition | None = None
    ) -> None:
        self._why_stuck, self._why_not_ready, self._metrics = why_stuck, why_not_ready, metrics
        self._page: tuple[float, Answer] | None = None

    def answer(self, path: str) -> Answer:
        """Return the answer to a GET of this path."""
        path = path.partition("?")[0]
        if path == "/healthz":
            return _judge(self._why_stuck())
        if path == "/readyz":
            return _judge(self._why_stuck() or self._why_not_ready())
        if self._metrics is None:
            return Answer(HTTPStatus.NOT_FOUND, "only /healthz and /readyz exist\n")
        if path == "/metrics":
            return self._show_metrics(self._metrics)
        return Answer(HTTPStatus.NOT_FOUND, "the pages are /healthz, /readyz and /metrics\n")

    def _show_metrics(self, metrics: Exposition) -> Answer:
        now = time.monotonic()
        if self._page is None or now - self._page[0] > PAGE_S:
            self._page = (now, _make_page(metrics))
        return self._page[1]


def _make_page(metrics: Exposition) -> Answer:
    if not metrics.is_there:
        return Answer(
            HTTPStatus.NOT_IMPLEMENTED,
            "metrics need the package prometheus-client: pip install 'paddle-on-kubernetes[metrics]'\n",
        )
    text, kind = metrics.render()
    return Answer(HTTPStatus.OK, text, kind)


def _judge(why_not: str) -> Answer:
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why_not}\n") if why_not else Answer(HTTPStatus.OK, "ok\n")


def reply(head: bytes, answer: Callable[[str], Answer]) -> bytes:
    """Return the answer to the head of a request; no input of a client raises an error."""
    words = head.split(b"\n", 1)[0].split()
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return Answer(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1 request\n").encode()
    if words[0] not in (b"GET", b"HEAD"):
        return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "this server answers only GET and HEAD\n").encode()
    return answer(words[1].decode("ascii", "replace")).encode(is_head=words[0] == b"HEAD")


@dataclass(eq=False)
class _Caller:
    stream: socket.socket
    until: float
    head: bytes = b""
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))


class Health(threading.Thread):
    """The thread that answers requests.

        health = Health(["10.0.0.2"], 7181, Pages(...))
        health.start()

    A program that must not live without its pages calls `serve` in a ServiceThread instead.

    Args: hosts: addresses to listen on.
    """

    def __init__(self, hosts: Sequence[str], port: int, pages: Pages) -> None:
        super().__init__(name="health", daemon=True)
        self._pages = pages
        self._selector = selectors.DefaultSelector()
        self._callers: dict[socket.socket, _Caller] = {}  # the oldest first
        self._answered, self._since = 0, time.monotonic()
        self._listeners: list[socket.socket] = []
        self._woken, self._wake = os.pipe()
        self._open_ends = [self._woken, self._wake]
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            for host in hosts:
                self._listen(host, port)
        except OSError:
            self._close()
            self._close_pipe()
            raise

    def _listen(self, host: str, port: int) -> None:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._listeners.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def stop(self) -> None:
        """End the thread and close its sockets."""
        if self.is_alive():
            os.write(self._wake, b"x")
            self.join()
        self._close_pipe()

    def run(self) -> None:
        """Serve, and log an error that ends the answers."""
        try:
            self.serve()
        except Exception as exc:  # a bug here must not end the training
            glog.error(f"/healthz, /readyz and /metrics are no longer answered: {type(exc).__name__}: {exc}")

    def serve(self) -> None:
        """Answer requests until `stop` is called."""
        try:
            while self._turn():
                pass
        finally:
            self._close()

    def _turn(self) -> bool:
        """Handle events and expired clients; return whether to continue."""
        self._rest()
        first = next(iter(self._callers.values()), None)
        now = time.monotonic()
        ready = self._selector.select(None if first is None else max(0.0, first.until - now))
        now = time.monotonic()
        for key, _ in ready:
            if key.fileobj == self._woken:
                return False
            if key.fileobj in self._listeners:
                self._accept(key.fileobj, now)  # type: ignore[arg-type]
            elif key.fileobj in self._callers:
                self._serve(self._callers[key.fileobj])  # type: ignore[index]
        for caller in [one for one in self._callers.values() if one.until < now]:
            self._drop(caller)
        return True

    def _rest(self) -> None:
        """Limit the rate of answers, because a client with endless requests could delay the program's other threads."""
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._answered = now, 0
        elif self._answered >= ANSWERS_PER_SECOND:
            time.sleep(self._since + 1 - now)

    def _accept(self, listener: socket.socket, now: float) -> None:
        try:
            stream, _ = listener.accept()
        except OSError:  # the client has disconnected, or no file descriptor is free
            if self._callers:
                self._drop(next(iter(self._callers.values())))
            self._answered += 1
            return
        if len(self._callers) >= MOST_CALLERS:
            self._drop(next(iter(self._callers.values())))
        stream.setblocking(False)
        self._callers[stream] = _Caller(stream, now + PATIENCE_S)
        self._selector.register(stream, selectors.EVENT_READ)
        self._answered += 1

    def _serve(self, caller: _Caller) -> None:
        try:
            if not caller.unsent:
                self._read(caller)
            if caller.unsent:
                caller.unsent = caller.unsent[caller.stream.send(caller.unsent) :]
                if not caller.unsent:
                    self._drop(caller)
        except BlockingIOError:
            pass
        except (OSError, EOFError):
            self._drop(caller)

    def _read(self, caller: _Caller) -> None:
        more = caller.stream.recv(MOST_HEAD_BYTES)
        if not more:
            raise EOFError
        caller.head += more
        if any(end in caller.head for end in _END):
            caller.unsent = memoryview(reply(caller.head, self._pages.answer))
        elif len(caller.head) >= MOST_HEAD_BYTES:
            too_long = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "this request is too long\n")
            caller.unsent = memoryview(too_long.encode())
        else:
            return
        self._selector.modify(caller.stream, selectors.EVENT_WRITE)

    def _drop(self, caller: _Caller) -> None:
        self._callers.pop(caller.stream, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(caller.stream)
        caller.stream.close()

    def _close(self) -> None:
        for caller in list(self._callers.values()):
            self._drop(caller)
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def _close_pipe(self) -> None:
        """Close the pipe. The thread never closes the pipe, because `stop` may be about to write to it."""
        while self._open_ends:
            os.close(self._open_ends.pop())


def watch(hosts: Sequence[str], port: int, pages: Pages) -> Health | None:
    """Start to answer on these addresses; if a port is not available, log a warning and return None."""
    try:
        health = Health(hosts, port, pages)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        glog.warning(
            f"--metrics_port={port}: cannot listen on {', '.join(hosts)}: {reason}; going on without /healthz, /readyz "
            "and /metrics"
        )
        return None
    health.start()
    glog.info(f"/healthz, /readyz and /metrics are on {', '.join(f'{host}:{port}' for host in hosts)}")
    return health

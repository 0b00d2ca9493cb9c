"""Serves /healthz, /readyz and /metrics of a program, for the pod's probes and for Prometheus (`--metrics_port`).

The thread of a front answers requests from values that the program's loop stores. The loop does no work for requests.
A client may be hostile. A request is therefore limited to MOST_HEAD_BYTES and PATIENCE_S. If there are MOST_CALLERS
clients, a new client replaces the oldest. At most ANSWERS_PER_SECOND answers are sent in a second, because more answers
could delay the program's other threads. An error of a page is the answer to the request, and a line in the log; it does
not end the program. If the port is in use, the program runs without these pages.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import NamedTuple

from paddle_base.runtime import glog
from paddle_base.runtime.health.metrics import Exposition
from paddle_base.runtime.network.front import Front, FrontHandlers, FrontLimits, Refused, has_head, make_answer
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit

MOST_CALLERS = 16
MOST_HEAD_BYTES = 8192
PATIENCE_S = 5.0  # maximum seconds for a client to send its request and to read the answer
ANSWERS_PER_SECOND = 50
PAGE_S = 1.0  # seconds for which a metrics page is reused
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    text: str
    kind: str = TEXT

    def encode(self, *, is_head: bool = False) -> bytes:
        """Return the bytes of the whole answer; for a HEAD request, omit the text."""
        headers = {"Content-Type": self.kind, "Cache-Control": "no-store"}
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        body = self.text.encode(errors="backslashreplace")  # the text of an error may have bytes of a file's name
        return make_answer(self.status, body, headers, is_head=is_head)


class Pages:
    """The contents of /healthz, /readyz and /metrics.

    Args: why_stuck, why_not_ready: functions that return a problem, or ""; the thread of the front calls them.
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


class PageJudge:
    """The handlers of a front that serves pages."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._accepted, self._since = 0, time.monotonic()
        self._lines = RateLimit(PROBLEM_LINE_S)

    def greet(self) -> bytes:
        """Limit the rate of answers, because a client with endless requests could delay the program's other threads."""
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._accepted = now, 0
        elif self._accepted >= ANSWERS_PER_SECOND:
            time.sleep(self._since + 1 - now)
        self._accepted += 1
        return b""

    def judge(self, data: bytes, greeting: bytes) -> Refused | None:
        """Return the page when the head of the request is complete; no page needs a thread of its own."""
        if has_head(data):
            return Refused(reply(data, self._answer))
        if len(data) >= MOST_HEAD_BYTES:
            too_long = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "this request is too long\n")
            return Refused(too_long.encode())
        return None

    def _answer(self, path: str) -> Answer:
        try:
            return self._pages.answer(path)
        except Exception as exc:  # a bug here must not end the training
            what = f"{type(exc).__name__}: {exc}"
            if self._lines.is_due(time.monotonic()):
                glog.error(f"a request for /healthz, /readyz or /metrics cannot be answered: {what}")
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{what}\n")


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Return a listening socket for each address.

    Raises: OSError: another program has the port, or an address is not of this machine.
    """
    listeners: list[socket.socket] = []
    try:
        for host in hosts:
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))  # the error of `create_server` has a text that is not the system's
            listener.listen()
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def serve(hosts: Sequence[str], port: int, pages: Pages, *, is_vital: bool) -> Front:
    """Answer requests on these addresses until the front is closed.

    Args: is_vital: whether the program must not live without its pages.
    Raises: OSError: another program has the port, or an address is not of this machine.
    """
    listeners = listen(hosts, port)
    judge = PageJudge(pages)
    limits = FrontLimits(
        unproven=MOST_CALLERS,
        of_address=MOST_CALLERS,
        head_bytes=MOST_HEAD_BYTES,
        head_s=PATIENCE_S,
        may_use_spare=True,  # a flood on another port of the program must not fail the pod's probes
    )
    return Front(listeners, FrontHandlers(judge.judge, lambda *_: False, judge.greet), limits, is_vital=is_vital)


def watch(hosts: Sequence[str], port: int, pages: Pages) -> Front | None:
    """Start to answer on these addresses; if a port is not available, log a warning and return None."""
    try:
        front = serve(hosts, port, pages, is_vital=False)
    except OSError as exc:
        reason = exc.strerror or str(exc)
        glog.warning(
            f"--metrics_port={port}: cannot listen on {', '.join(hosts)}: {reason}; going on without /healthz, /readyz "
            "and /metrics"
        )
        return None
    glog.info(f"/healthz, /readyz and /metrics are on {', '.join(f'{host}:{port}' for host in hosts)}")
    return front


@contextlib.contextmanager
def watched(hosts: Sequence[str], port: int, pages: Pages) -> Iterator[None]:
    """Do the same as `watch` until the end of the `with` block."""
    front = watch(hosts, port, pages)
    try:
        yield
    finally:
        if front is not None:
            front.close()

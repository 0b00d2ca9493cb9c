"""Sends the signed requests of one client, and accepts only answers that prove the job's secret."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from paddle_base.runtime.network.timed import TimedConnection
from paddle_cluster.elastic.keyvalue.freshness import Signer
from paddle_cluster.elastic.keyvalue.signature import HEADER, STALE

MOST_UNREAD = 16 << 10  # bytes of a body that the connection takes although the server does not read them


class UnprovenAnswerError(http.client.HTTPException):
    """An answer does not prove the job's secret. `status` is its status."""

    def __init__(self, status: int) -> None:
        super().__init__("the answer does not prove this job's secret")
        self.status = status


class Exchanged(NamedTuple):
    """An answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SignedExchange:
    """The connections of a client to one server.

    A connection stays open for later requests. While strangers open thousands of connections to the server, a request
    on a connection that exists needs no new one.

    Args:
    - own_headers: names of the headers, in lower case and in order, that the signature of an answer covers.
    - most: maximum bytes of the body of an answer.
    - gone_s: seconds without an acknowledgement after which the server's host counts as lost; 0: the system's default.
    - most_kept: maximum number of open connections that wait for the next request.
    - on_connect: is called when the server's host has accepted a connection.

    Thread safety: any thread may call any method.
    """

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        *,
        own_headers: Sequence[str] = (),
        most: int,
        gone_s: int = 0,
        most_kept: int = 4,
        on_connect: Callable[[], None] = lambda: None,
    ) -> None:
        self._address, self._port, self._secret, self._signer = address, port, secret, Signer(secret)
        self._own_headers, self._most, self._gone_s = own_headers, most, gone_s
        self._most_kept, self._on_connect = most_kept, on_connect
        self._lock = threading.Lock()
        self._kept: list[TimedConnection] = []
        self._process = os.getpid()

    def ask(self, method: str, path: str, body: bytes, connect_s: float, answer_s: float) -> Exchanged:
        """Send a request, and return its answer.

        Raises: OSError, http.client.HTTPException: there is no answer.  UnprovenAnswerError: see there.
        """
        if len(body) > MOST_UNREAD and not self._signer.has_epoch:  # the server would refuse the body without its epoch
            self._ask("GET", "/epoch/now", b"", connect_s, connect_s)
        found = self._ask(method, path, body, connect_s, answer_s)
        return found if found.status != STALE else self._ask(method, path, body, connect_s, answer_s)

    def _ask(self, method: str, path: str, body: bytes, connect_s: float, answer_s: float) -> Exchanged:
        """Send a request on a kept connection or on a new one; what the server has closed meanwhile is replaced."""
        kept = self._take()
        if kept is not None:
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                return self._send(kept, method, path, body, answer_s)
            self.close()  # the others are probably closed, too
        return self._send(self._connect(connect_s), method, path, body, answer_s)

    def close(self) -> None:
        """Close the connections that wait for a request."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def __del__(self) -> None:
        self.close()

    def _take(self) -> TimedConnection | None:
        if (
            self._process != os.getpid()
        ):  # a forked process must use neither lock, connections nor numbers of its parent
            self._process, self._lock, self._signer = os.getpid(), threading.Lock(), Signer(self._secret)
            self.close()  # only the copies that this process has
        with self._lock:
            return self._kept.pop() if self._kept else None

    def _connect(self, seconds: float) -> TimedConnection:
        connection = TimedConnection(self._address, self._port, timeout=seconds)
        connection.connect()
        self._on_connect()
        if self._gone_s:
            stream: socket.socket = connection.sock
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * self._gone_s)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
                stream.setsockopt(socket.IPPROTO_TCP, option, max(1, self._gone_s // 3))
        return connection

    def _send(self, connection: TimedConnection, method: str, path: str, body: bytes, seconds: float) -> Exchanged:
        is_kept = False
        try:
            stream: socket.socket = connection.sock
            stream.settimeout(seconds)
            proof = self._signer.sign(method, path, body)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server may refuse to read the body
                connection.request(method, path, body if method == "PUT" else None, self._signer.header(proof))
            answer = connection.getresponse()
            found = answer.read(self._most + 1)
            if len(found) > self._most:
                raise http.client.HTTPException("the answer is too long")
            headers = {name.lower(): value for name, value in answer.getheaders()}
            texts = [str(answer.status), *(headers[name] for name in self._own_headers if name in headers)]
            if not self._signer.is_answered(proof, headers.get(HEADER.lower(), ""), texts, found):
                raise UnprovenAnswerError(answer.status)
            is_kept = not answer.will_close
            return Exchanged(answer.status, headers, found)
        finally:
            with self._lock:
                is_kept = is_kept and connection.sock is not None and len(self._kept) < self._most_kept
                if is_kept:
                    self._kept.append(connection)
            if not is_kept:
                with contextlib.suppress(OSError):
                    connection.close()

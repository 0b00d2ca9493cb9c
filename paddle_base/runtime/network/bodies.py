"""Reads and answers a request that a front has admitted; the body has limits of size and time."""

from __future__ import annotations

import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from paddle_base.runtime.network.front import find_length

BODY_S = 3.0  # maximum seconds that a client may send nothing while its body is incomplete
REQUEST_S = 30.0  # seconds after whose end no further data of a body is received
ANSWER_S = 30.0  # seconds that a client may read nothing of its answer


class BadRequestError(Exception):
    """A request whose answer is an error status."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestReader:
    """Reads a request, whose first bytes have arrived, from a connection; raises TimeoutError if the rest is late."""

    closed = False

    def __init__(self, connection: socket.socket, data: bytes) -> None:
        self._connection, self._data = connection, data
        self._deadline = time.monotonic() + REQUEST_S

    @property
    def is_empty(self) -> bool:
        """Whether every byte that has arrived is read."""
        return not self._data

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line of the head, which has arrived as a whole."""
        line, end, _ = self._data.partition(b"\n")
        line = (line + end)[: limit if limit >= 0 else None]
        self._data = self._data[len(line) :]
        return line

    def read(self, count: int) -> bytes:
        """Return so many bytes, or fewer if the client has ended the connection."""
        parts, missing = [self._data[:count]], count - len(self._data)
        self._data = self._data[count:]
        while missing > 0:
            if time.monotonic() > self._deadline:
                raise TimeoutError
            part = self._connection.recv(min(missing, 1 << 16))
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing; the front closes the connection."""


class BoundedHandler(BaseHTTPRequestHandler):
    """Answers one request; a subclass has the methods `do_GET` and so on.

    Args: request: the connection. data: the bytes of the request that have arrived, with its whole head.
    """

    protocol_version = "HTTP/1.1"
    timeout = ANSWER_S
    server: Any
    rfile: Any

    def __init__(self, request: Any, client_address: Any, server: Any, data: bytes = b"") -> None:
        self._data = data
        super().__init__(request, client_address, server)

    @property
    def is_kept(self) -> bool:
        """Whether the connection may stay open for another request."""
        return not self.close_connection and self.rfile.is_empty

    def setup(self) -> None:
        """Prepare to receive the rest of the request within REQUEST_S."""
        super().setup()
        self.rfile = RequestReader(self.connection, self._data)

    def handle(self) -> None:
        """Answer one request."""
        self.close_connection = True
        self.handle_one_request()

    def read_body(self, most: int, what: str, default: str = "") -> bytes:
        """Return the body.

        Args: most: its maximum number of bytes. what: what it is, for messages: "a value". default: see `find_length`.
        Raises: BadRequestError: the length is missing, unclear or too large, or the body has not arrived.
        """
        length = find_length(self.headers, default)
        if length is None:
            raise BadRequestError(HTTPStatus.LENGTH_REQUIRED, "a body needs one Content-Length")
        if length > most:
            raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{what} has at most {most} bytes")
        self.connection.settimeout(BODY_S)
        try:
            body: bytes = self.rfile.read(length)
        except TimeoutError:
            body = b""
        self.connection.settimeout(ANSWER_S)
        if len(body) < length:
            raise BadRequestError(HTTPStatus.REQUEST_TIMEOUT, "the body of the request has not arrived")
        return body

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a line for every request would hide other lines of the log."""

"""A server of the Kubernetes REST API for the pods of a `PodStore`, over TLS; it can inject faults."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import ssl
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any

import trustme

from paddle_base.runtime.network.front import Admitted, Front, FrontHandlers, FrontLimits, find_length
from paddle_cluster.localcluster.api.routes import ApiResponse, Hook, Routes, parse_request
from paddle_cluster.localcluster.api.store import PodStore
from paddle_cluster.localcluster.errors import HostError
from paddle_cluster.localcluster.scratch import PREFIX, Scratch

IDLE_SECONDS = 300.0
MOST_BODY_BYTES = 3 << 20  # maximum of the API server of Kubernetes
LISTEN_BACKLOG = 1024  # a thousand launchers can connect at once
LIMITS = FrontLimits(unproven=2048, of_address=2048, proven=4096)


def peak_rate(times: Sequence[float], window: float = 1.0) -> float:
    """Return the highest request rate (per second) over any `window` seconds, from the requests' ascending times."""
    return max((bisect_right(times, start + window) - number for number, start in enumerate(times)), default=0) / window


class ApiServer:
    """A context manager that serves a store's pods on loopback.

    Args:
        store: the pods; they may change at any time.
        token: the accepted bearer token (default: a random token); None accepts all requests. The attribute `token`
            can be changed.
        namespace: the only namespace that the token can read.
        hook: a function that is called with each request, in the request's thread. The result is an ApiResponse
            that replaces the true response, or None for the true response. Examples: `ApiResponse.failure(429,
            "TooManyRequests", "slow down", Retry_After="1")`, `ApiResponse.html()`, `ApiResponse.empty()`,
            `ApiResponse.never()`. The attribute `hook` can be changed.
        host: the address to bind; the server chooses the port.

    Use:
        with ApiServer(store, token="t") as api:
            url = f"{api.url}/api/v1/namespaces/default/pods"
            requests.get(url, headers={"Authorization": "Bearer t"}, verify=api.ca_file, timeout=5)
            api.request_count, api.statuses[200], api.peak_rate()
    """

    def __init__(
        self,
        store: PodStore,
        token: str | None = "",
        *,
        namespace: str = "default",
        hook: Hook | None = None,
        host: str = "127.0.0.1",
        service_account: str = "default",
    ):
        self.hook = hook
        self.namespace = namespace
        self.statuses: Counter[int] = Counter()
        self.closed = threading.Event()
        self._times: list[float] = []
        self._lock = threading.Lock()
        self._routes = Routes(store, secrets.token_urlsafe(24) if token == "" else token, namespace, service_account)
        self._scratch = Scratch(f"{PREFIX}ca-")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._scratch.path / "ca.crt")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host, "localhost", "kubernetes.default.svc").configure_cert(context)
        try:
            listener = socket.create_server((host, 0), backlog=LISTEN_BACKLOG)
        except OSError as error:
            self._scratch.remove()
            raise HostError(f"cannot serve the API on {host}: {os.strerror(error.errno or 0)}") from error
        self.host, self.port = listener.getsockname()
        self._connections = _TlsConnections(self, context)
        handlers = FrontHandlers(lambda *_: Admitted(None), self._connections.serve, peeks=True)
        self._front = Front([listener], handlers, LIMITS)

    @property
    def url(self) -> str:
        """The address of the server, such as https://127.0.0.1:40123."""
        return f"https://{self.host}:{self.port}"

    @property
    def ca_file(self) -> str:
        """The CA certificate that verifies the server."""
        return str(self._scratch.path / "ca.crt")

    @property
    def token(self) -> str | None:
        """The accepted bearer token."""
        return self._routes.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._routes.token = token

    @property
    def request_count(self) -> int:
        """The number of requests so far."""
        return len(self._times)

    @property
    def request_times(self) -> list[float]:
        """The times of the requests (time.monotonic)."""
        with self._lock:
            return list(self._times)

    def peak_rate(self, window: float = 1.0) -> float:
        """Return the highest request rate (per second) over any `window` seconds so far."""
        return peak_rate(self.request_times, window)

    def write_service_account(self, directory: Path) -> None:
        """Write the files ca.crt, token and namespace, which a pod reads from its service account's directory."""
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.ca_file, directory / "ca.crt")
        (directory / "token").write_text(self.token or "")
        (directory / "namespace").write_text(self.namespace)

    def respond(self, method: str, target: str, headers: Any) -> ApiResponse:
        """Count a request and return its response; the threads of the connections call this function."""
        with self._lock:
            self._times.append(time.monotonic())
            number = len(self._times)
        request = parse_request(method, target, headers, number)
        response = self.hook(request) if self.hook is not None else None
        response = self._routes.answer(request) if response is None else response
        with self._lock:
            self.statuses[response.status] += 1
        return response

    def close(self) -> None:
        """Stop the server, close all connections, and wait until all threads have ended."""
        if not self.closed.is_set():
            self.closed.set()
            self._front.close()
            self._connections.cut()
            self._front.close(IDLE_SECONDS)
            self._scratch.remove()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _TlsConnections:
    """The open connections; each is served in a thread of the front, from the TLS handshake to the last request."""

    def __init__(self, api: ApiServer, context: ssl.SSLContext) -> None:
        self._api: Any = api
        self._context = context
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def serve(self, stream: socket.socket, address: str, data: bytes, facts: object) -> bool:
        stream.settimeout(LIMITS.head_s)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False) as connection:
            with self._lock:
                self._open.add(connection)
                if self._api.closed.is_set():
                    return False
            try:
                connection.do_handshake()
                connection.settimeout(IDLE_SECONDS)
                _Handler(connection, (address, 0), self._api)
            except (OSError, ValueError):  # clients may break their connections
                pass
            finally:
                with self._lock:
                    self._open.discard(connection)
        return False

    def cut(self) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    # SSLSocket's own shutdown would drop the TLS state that the reading thread still uses
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                except OSError:
                    continue  # the connection has already ended


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any  # an ApiServer

    def _answer(self) -> None:
        length = find_length(self.headers)
        if length is None or length > MOST_BODY_BYTES:
            self.close_connection = True  # the next request cannot be found without the length of this one
            response = ApiResponse.failure(400, "BadRequest", f"Content-Length is not in [0, {MOST_BODY_BYTES}]")
        else:
            self.rfile.read(length)
            response = self.server.respond(self.command, self.path, self.headers)
        if response.hang:
            self.server.closed.wait()
            self.close_connection = True
            return
        headers = {"Content-Type": response.content_type, "Content-Length": str(len(response.body)), **response.headers}
        lines = [f"HTTP/1.1 {response.status} {self.responses.get(response.status, ('',))[0]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + response.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the counters record the requests."""

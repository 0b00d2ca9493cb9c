"""The HTTP servers of the driver, with a key-value store that every program of the job reads and writes.

    server = RendezvousServer(secret=...)
    port = server.start(create_rendezvous_handler(driver))

A path is `/<scope>/<key>`. A GET is answered with 200 and the value, or with 404. GET with `?wait=seconds` waits for
the value. PUT and DELETE are answered with 200. Another path is answered with 400, a request without the signature of
the job's secret with 403, and a missing body with 408. Answers are signed, too. A client may be hostile, so the server
limits the size of head and body, the time without data, the time of a request, and the number of simultaneous requests.

Class names are those of Horovod 0.28's `horovod.runner.http.http_server`.
"""

from __future__ import annotations

import io
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import unquote

from elastic.hosts import SlotInfo
from elastic.keyvalue.signature import HEADER, is_signed, sign_answer
from elastic.keyvalue.store import MOST_VALUE_BYTES, FullStoreError, KeyValueStore
from runtime import glog
from runtime.service_threads import ServiceThread

MOST_CALLERS = 4096  # maximum simultaneous requests; a worker has up to three, for rank, notices and heartbeat
MOST_PATH = 1024  # characters
BODY_S = 3.0  # maximum seconds that a client may send nothing while its body is incomplete
HEAD_S = 10.0  # maximum seconds that a client may send nothing while the head of its request is incomplete
REQUEST_S = 30.0  # seconds after whose end no further data of a request is received
MOST_WAIT_S = 30.0  # maximum seconds that a GET waits; the client then repeats the request
_PART = re.compile(r"[!-.0-~]{1,400}")  # a scope or a key: printable characters without blanks and "/"
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")


class HttpRequest(NamedTuple):
    """A request that is well-formed and signed."""

    method: str
    scope: str
    key: str
    query: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def wait(self) -> float:
        """The seconds that the client is ready to wait, but at most `MOST_WAIT_S`."""
        text = self.query.get("wait", "0")
        return min(float(text), MOST_WAIT_S) if _SECONDS.fullmatch(text) else 0.0


class HttpAnswer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: bytes = b""
    headers: Mapping[str, str] = {}


class _BadRequestError(Exception):
    """A request whose answer is an error status."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _RequestReader(io.RawIOBase):
    """Reads the request of a connection, and raises TimeoutError if the client sends it too slowly.

    Without this limit a client that sends one byte now and then would occupy one of MOST_CALLERS threads for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._deadline = connection, time.monotonic() + REQUEST_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return self._connection.recv_into(buffer)


class KVStoreHandler(BaseHTTPRequestHandler):
    """Answers GET and PUT requests for values."""

    timeout = HEAD_S
    most_body = MOST_VALUE_BYTES
    server: KVStoreHTTPServer

    def setup(self) -> None:
        """Prepare to receive a request within REQUEST_S."""
        super().setup()
        self.rfile = io.BufferedReader(_RequestReader(self.connection))

    def do_GET(self) -> None:
        """Answer a GET."""
        self._serve("GET")

    def do_PUT(self) -> None:
        """Answer a PUT."""
        self._serve("PUT")

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Return the answer to a request; a subclass answers further requests."""
        if request.method == "PUT":
            self.server.store.put(request.scope, request.key, request.body)
            return HttpAnswer(HTTPStatus.OK)
        if request.method == "DELETE":
            self.server.store.delete(request.scope, request.key)
            return HttpAnswer(HTTPStatus.OK)
        value = self.server.store.get(request.scope, request.key, request.wait)
        return HttpAnswer(HTTPStatus.NOT_FOUND) if value is None else HttpAnswer(HTTPStatus.OK, value)

    def _serve(self, method: str) -> None:
        is_known = False
        try:
            request = self._read(method)
            is_known = bool(self.server.secret)
            given = self.answer(request)
        except _BadRequestError as exc:
            given = HttpAnswer(exc.status, f"{exc}\n".encode())
        except FullStoreError as exc:
            given = HttpAnswer(HTTPStatus.INSUFFICIENT_STORAGE, f"{exc}\n".encode())
        self.send_response(given.status)
        self.send_header("Content-Length", str(len(given.body)))
        for name, value in given.headers.items():
            self.send_header(name, value)
        if is_known:
            texts = [str(int(given.status)), *given.headers.values()]
            self.send_header(HEADER, sign_answer(self.server.secret, (method, self.path), texts, given.body))
        self.end_headers()
        self.wfile.write(given.body)

    def _read(self, method: str) -> HttpRequest:
        path, _, query = self.path.partition("?")
        parts = path.split("/")
        if len(self.path) > MOST_PATH or len(parts) != 3 or parts[0] or not all(map(_PART.fullmatch, parts[1:])):
            raise _BadRequestError(HTTPStatus.BAD_REQUEST, "a path has the form /<scope>/<key>")
        body = self._read_body() if method == "PUT" else b""
        if not is_signed(self.headers.get(HEADER, ""), self.server.secret, method, self.path, body):
            raise _BadRequestError(
                HTTPStatus.FORBIDDEN,
                f"{HEADER} does not prove this job's secret; client and server need the same PADDLE_SECRET",
            )
        pairs = {name: unquote(value) for name, _, value in (one.partition("=") for one in query.split("&"))}
        return HttpRequest(method, parts[1], parts[2], pairs, body)

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _BadRequestError(HTTPStatus.LENGTH_REQUIRED, "a PUT needs a Content-Length")
        if len(length) > 12 or int(length) > self.most_body:
            raise _BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a value has at most {self.most_body} bytes")
        self.connection.settimeout(BODY_S)
        try:
            body = self.rfile.read(int(length))
        except TimeoutError:
            body = b""
        if len(body) < int(length):
            raise _BadRequestError(HTTPStatus.REQUEST_TIMEOUT, "the body of the request has not arrived")
        return body

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a line for every request would hide other lines of the log."""


class RendezvousHandler(KVStoreHandler):
    """Answers GET, PUT and DELETE requests for values."""

    def do_DELETE(self) -> None:
        """Answer a DELETE."""
        self._serve("DELETE")


class KVStoreHTTPServer(ThreadingHTTPServer):
    """A server with a store; a separate thread answers each request."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    allow_reuse_address = True

    def __init__(
        self, addr: tuple[str, int], handler: type[KVStoreHandler], verbose: int = 0, secret: str = ""
    ) -> None:
        self.store, self.verbose, self.secret = KeyValueStore(), verbose, secret
        self._callers = threading.Semaphore(MOST_CALLERS)
        super().__init__(addr, handler)

    def server_bind(self) -> None:
        """Bind the address without the base class's look-up of the host name, because the look-up may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if there are too many clients."""
        if not self._callers.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread did not begin
            self._callers.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and then admit another client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._callers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a client that is lost or silent; the handler logs its own faults."""


class RendezvousHTTPServer(KVStoreHTTPServer):
    """The server of a key-value store that has a scope for each group of slots of a generation."""

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> None:
        """Remove all values; plan the scopes global, local_<host> and cross_<local rank>; see `KeyValueStore.plan`."""
        sizes: Counter[str] = Counter()
        for slot in host_alloc_plan:
            sizes.update(["global", f"local_{slot.hostname}", f"cross_{slot.local_rank}"])
        self.store.plan(sizes)


_S = TypeVar("_S", bound=KVStoreHTTPServer)
_Make = Callable[[tuple[str, int], type[KVStoreHandler], int, str], _S]


class _HttpServerThread(Generic[_S]):
    """A server that runs in a separate thread."""

    def __init__(self, make: _Make[_S], verbose: int, secret: str) -> None:
        self._make, self._verbose, self._secret = make, verbose, secret
        self._httpd: _S | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Lock()

    def _start(self, handler_cls: type[KVStoreHandler], address: tuple[str, int]) -> int:
        self._httpd = self._make(address, handler_cls, self._verbose, self._secret)
        self._thread = ServiceThread(partial(self._httpd.serve_forever, 0.05), "http")
        self._thread.start()
        if self._httpd.verbose:
            glog.info(f"the rendezvous server listens on port {self._httpd.server_port}")
        return self._httpd.server_port

    def stop(self) -> None:
        """End the thread and close the port; further calls do nothing."""
        with self._stopping:
            httpd, self._httpd = self._httpd, None
            if httpd is not None and self._thread is not None:
                httpd.store.close()
                httpd.shutdown()
                httpd.server_close()
                self._thread.join()


class KVStoreServer(_HttpServerThread[KVStoreHTTPServer]):
    """A key-value store on a port."""

    def __init__(self, verbose: int = 0, secret: str = "") -> None:
        super().__init__(KVStoreHTTPServer, verbose, secret)

    def start_server(self, handler_cls: type[KVStoreHandler] = KVStoreHandler, port: int = 0, address: str = "") -> int:
        """Start the server and return its port.

        Args: port: 0: any free port.  address: address to listen on; empty: all addresses.
        Raises: OSError: another program has the port.
        """
        return self._start(handler_cls, (address, port))

    def shutdown_server(self) -> None:
        """Stop the server."""
        self.stop()


class RendezvousServer(_HttpServerThread[RendezvousHTTPServer]):
    """The server by which the workers of a job find each other."""

    def __init__(self, verbose: int = 0, secret: str = "") -> None:
        super().__init__(RendezvousHTTPServer, verbose, secret)

    def start(self, handler_cls: type[KVStoreHandler] = RendezvousHandler, port: int = 0, address: str = "") -> int:
        """Start the server and return its port.

        Args: port: 0: any free port.  address: address to listen on; empty: all addresses.
        Raises: OSError: another program has the port.
        """
        return self._start(handler_cls, (address, port))

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> None:
        """Begin a new generation: see `RendezvousHTTPServer.init`."""
        httpd = self._httpd
        if httpd is not None:
            httpd.init(host_alloc_plan)

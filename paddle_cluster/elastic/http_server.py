"""The HTTP servers of the driver, with a key-value store that every program of the job reads and writes.

    server = RendezvousServer(secret=...)
    port = server.start(create_rendezvous_handler(driver))

A path is `/<scope>/<key>`. A GET is answered with 200 and the value, or with 404. GET with `?wait=seconds` waits for
the value. PUT and DELETE are answered with 200. Another path is answered with 400, a request without the signature of
the job's secret with 403, one that is not fresh (`paddle_cluster.elastic.keyvalue.signature`) with 428, and a missing
body with 408. Answers are signed, too. A client may be hostile, so a front (`paddle_base.runtime.network.front`) reads
the head of a request, and only a request whose head proves the secret gets a thread. The server limits the size and the
time of head and body.

Class names are those of Horovod 0.28's `horovod.runner.http.http_server`.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from paddle_base.runtime import glog
from paddle_base.runtime.network.bodies import BadRequestError, BoundedHandler
from paddle_base.runtime.network.front import (
    Admitted,
    Front,
    FrontHandlers,
    FrontLimits,
    Refused,
    has_head,
    make_answer,
)
from paddle_base.runtime.network.open_files import make_room
from paddle_base.runtime.network.own_sockets import keep_from_children
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.keyvalue.freshness import Checker
from paddle_cluster.elastic.keyvalue.signature import HEADER, STALE, RequestProof, digest
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES, FullStoreError, KeyValueStore

# simultaneous requests, and connections that wait for the next one; a worker has up to three requests at a time, for
# its rank, notices and heartbeat
LIMITS = FrontLimits(proven=4096)
MOST_PATH = 1024  # characters
MOST_WAIT_S = 30.0  # maximum seconds that a GET waits; the client then repeats the request
PUT_PLACES = "places"
_HEAD = re.compile(rb"([A-Z]{1,16}) ([^ \r\n]{1,4096}) HTTP/1\.[01]\r?\n(?:.*\n)*?\r?\n")
_SIGNATURE = re.compile(rb"\n%b: *([0-9a-f.]{1,256}) *\r?\n" % HEADER.encode(), re.IGNORECASE)
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


class KVStoreHandler(BoundedHandler):
    """Answers GET and PUT requests for values.

    Args: request: the connection.  data: the bytes of the request that have arrived, with its whole head.  proof: what
        the head proves; None without a secret.
    """

    most_body = MOST_VALUE_BYTES
    server: Any  # a KVStoreHTTPServer

    def __init__(
        self, request: Any, client_address: Any, server: Any, data: bytes = b"", proof: RequestProof | None = None
    ) -> None:
        self._proof = proof
        super().__init__(request, client_address, server, data)

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
        try:
            given = self.answer(self._read(method))
        except BadRequestError as exc:
            given = HttpAnswer(exc.status, f"{exc}\n".encode())
            self.close_connection = True  # the rest of the body may still come
        except FullStoreError as exc:
            given = HttpAnswer(HTTPStatus.INSUFFICIENT_STORAGE, f"{exc}\n".encode())
        self.send_response(given.status)
        self.send_header("Content-Length", str(len(given.body)))
        if self.is_kept:
            # the head and the body are two segments, and the second would wait 40 ms for an acknowledgement
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.send_header("Connection", "close")
        for name, value in given.headers.items():
            self.send_header(name, value)
        if self._proof is not None:
            texts = [str(int(given.status)), *given.headers.values()]
            self.send_header(HEADER, self.server.checker.sign_answer(self._proof, texts, given.body))
        self.end_headers()
        self.wfile.write(given.body)

    def _read(self, method: str) -> HttpRequest:
        path, _, query = self.path.partition("?")
        parts = path.split("/")
        body = self.read_body(self.most_body, "a value", "" if method == "PUT" else "0")
        if self._proof is not None and self._proof.digest != digest(body):
            raise BadRequestError(HTTPStatus.FORBIDDEN, "the body is not the one that the head of the request names")
        pairs = {name: unquote(value) for name, _, value in (one.partition("=") for one in query.split("&"))}
        return HttpRequest(method, parts[1], parts[2], pairs, body)


class RendezvousHandler(KVStoreHandler):
    """Answers GET, PUT and DELETE requests for values."""

    def do_DELETE(self) -> None:
        """Answer a DELETE."""
        self._serve("DELETE")

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request. The first value of a worker's place stays, and is the answer to every PUT of this place."""
        if (request.method, request.scope) != ("PUT", PUT_PLACES):
            return super().answer(request)
        return HttpAnswer(HTTPStatus.OK, self.server.store.put_first(request.scope, request.key, request.body))


class KVStoreHTTPServer:
    """A server with a store; a front reads the head of each request, and a separate thread answers the request.

    Args: addr: address and port to listen on.
    Raises: OSError: another program has the port.
    """

    def __init__(
        self,
        addr: tuple[str, int],
        handler: type[KVStoreHandler],
        verbose: int = 0,
        secret: str = "",
        limits: FrontLimits = LIMITS,
    ) -> None:
        self.store, self.verbose, self.checker = KeyValueStore(), verbose, Checker(secret)
        self._handler = handler
        listener = socket.create_server(addr, backlog=1024)
        keep_from_children(listener)  # nobody would answer at the port of a dead process
        self.server_address = listener.getsockname()
        self.server_port: int = self.server_address[1]
        self._front = Front([listener], FrontHandlers(self._judge, self._serve), limits)

    @property
    def secret(self) -> str:
        """The secret that every request has to prove; empty: none."""
        return self.checker.secret

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port."""
        self.store.close()
        self._front.close()

    def _judge(self, data: bytes, greeting: bytes) -> Admitted | Refused | None:
        """Admit a request with a right path and a signature; refuse others."""
        if not has_head(data):
            return None
        head = _HEAD.match(data)
        if head is None:
            return _refuse(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1")
        method, target = head[1].decode(), head[2].decode("latin-1")
        parts = target.partition("?")[0].split("/")
        if not hasattr(self._handler, f"do_{method}"):
            return _refuse(HTTPStatus.NOT_IMPLEMENTED, f"there is no {method}")
        if len(target) > MOST_PATH or len(parts) != 3 or parts[0] or not all(map(_PART.fullmatch, parts[1:])):
            return _refuse(HTTPStatus.BAD_REQUEST, "a path has the form /<scope>/<key>")
        if not self.secret:
            return Admitted(None)
        signature = _SIGNATURE.search(head[0])
        proof = self.checker.read(signature[1].decode() if signature else "", method, target)
        if proof is None:
            return _refuse(
                HTTPStatus.FORBIDDEN,
                f"{HEADER} does not prove this job's secret; client and server need the same PADDLE_SECRET",
            )
        # a recorded request, or the first one to this server: the answer tells the epoch, with which the client asks
        # again
        if not self.checker.is_fresh(proof):
            return _refuse(HTTPStatus(STALE), "", {HEADER: self.checker.sign_answer(proof, [str(STALE)], b"")})
        return Admitted(proof)

    def _serve(self, stream: socket.socket, address: str, data: bytes, proof: RequestProof | None) -> bool:
        return self._handler(stream, (address, 0), self, data, proof).is_kept


def _refuse(status: HTTPStatus, text: str, headers: Mapping[str, str] = {}) -> Refused:
    """Return an answer that closes the connection."""
    return Refused(make_answer(status, f"{text}\n".encode() if text else b"", headers))


class RendezvousHTTPServer(KVStoreHTTPServer):
    """The server of a key-value store that has a scope for each group of slots of a generation."""

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> None:
        """Remove all values; plan the scopes global, local_<host> and cross_<local rank>; see `KeyValueStore.plan`."""
        sizes: Counter[str] = Counter()
        for slot in host_alloc_plan:
            sizes.update(["global", f"local_{slot.hostname}", f"cross_{slot.local_rank}"])
        self.store.plan(sizes)


class KVStoreServer:
    """A key-value store on a port, which `start_server` opens."""

    _kind: type[KVStoreHTTPServer] = KVStoreHTTPServer

    def __init__(self, verbose: int = 0, secret: str = "", limits: FrontLimits = LIMITS) -> None:
        self._verbose, self._secret, self._limits = verbose, secret, limits
        self._httpd: KVStoreHTTPServer | None = None
        self._stopping = threading.Lock()

    def start_server(self, handler_cls: type[KVStoreHandler] = KVStoreHandler, port: int = 0, address: str = "") -> int:
        """Start the server and return its port.

        Args: port: 0: any free port.  address: address to listen on; empty: all addresses.
        Raises: OSError: another program has the port.
        """
        limits = self._limits
        if limits is LIMITS:  # a program that serves a whole job; a worker keeps the limit that its user has chosen
            room = make_room(limits.unproven + limits.proven)
            limits = limits._replace(proven=max(1, room - limits.unproven))
        self._httpd = self._kind((address, port), handler_cls, self._verbose, self._secret, limits)
        if self._verbose:
            glog.info(f"the rendezvous server listens on port {self._httpd.server_port}")
        return self._httpd.server_port

    def shutdown_server(self) -> None:
        """Close the port; further calls do nothing."""
        with self._stopping:
            httpd, self._httpd = self._httpd, None
            if httpd is not None:
                httpd.close()


class RendezvousServer(KVStoreServer):
    """The server by which the workers of a job find each other."""

    _kind = RendezvousHTTPServer

    def start(self, handler_cls: type[KVStoreHandler] = RendezvousHandler, port: int = 0, address: str = "") -> int:
        """See `start_server`."""
        return self.start_server(handler_cls, port, address)

    def stop(self) -> None:
        """See `shutdown_server`."""
        self.shutdown_server()

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> None:
        """Begin a new generation: see `RendezvousHTTPServer.init`."""
        httpd = self._httpd
        if isinstance(httpd, RendezvousHTTPServer):
            httpd.init(host_alloc_plan)

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value of the driver, if there is room for it."""
        httpd = self._httpd
        if httpd is not None:
            with contextlib.suppress(FullStoreError):
                httpd.store.put(scope, key, value)

"""The service over HTTP: POST / with samples as JSON, and the pages /healthz, /readyz and /metrics.

The form of requests and answers is that of the PaddlePaddle Book's serve/main.py: `{"img": [...]}` is answered with
`{"code": 0, "message": "success", "data": ...}`, and an error with `{"code": -1, "message": ...}`. A list of samples is
answered with a list. A client may be hostile: a request has limits of bytes, levels, values and time.
"""

from __future__ import annotations

import contextlib
import socket
import time
from http import HTTPStatus
from typing import Any, NamedTuple

from paddle_base.runtime.bounded_json import BoundedJsonError, dump_compact, parse_value
from paddle_base.runtime.errors import DataError, PaddleError
from paddle_base.runtime.network.bodies import BODY_S, BadRequestError, BoundedHandler
from paddle_base.runtime.network.front import Admitted, Refused, has_head, make_answer
from paddle_base.runtime.network.pages import PageJudge, Pages
from trainer.serving.batcher import Batcher, LateError
from trainer.serving.tally import Tally

DEPTH = 6  # maximum levels of a body: a list of samples, a sample, and three levels of lists for sub-sequences of pairs
DISCARDED_BYTES = 1 << 20  # maximum bytes of a refused body that are read, so that the client reads the answer
JSON = {"Content-Type": "application/json"}


class RequestLimits(NamedTuple):
    """The limits of requests.

    - requests: that are answered at the same time; one more is answered with 503.
    - body_bytes: of a body.
    - values: numbers and further values of a body.
    - samples: of a request.
    """

    requests: int = 128
    body_bytes: int = 1 << 20
    values: int = 1 << 16
    samples: int = 32


class Service:
    """Answers the requests that a front admits. Thread safety: the threads of the front use it."""

    def __init__(self, batcher: Batcher, pages: Pages, limits: RequestLimits, tally: Tally) -> None:
        self._batcher, self._limits, self._tally = batcher, limits, tally
        self._pages = PageJudge(pages)

    def judge(self, data: bytes, greeting: bytes) -> Admitted | Refused | None:
        """Admit a POST; the front itself answers everything else."""
        if data.startswith(b"POST ") and has_head(data):
            return Admitted(None)
        return self._pages.judge(data, greeting)

    def serve(self, stream: socket.socket, address: str, data: bytes, facts: object) -> bool:
        """Answer a POST, and return whether the connection stays open."""
        began, status = time.monotonic(), 0
        is_allowed = self._tally.open_request(self._limits.requests)
        try:
            handler = _Handler(stream, (address, 0), self, data, is_allowed=is_allowed)
            status = handler.status
        finally:
            self._tally.close_request(status, time.monotonic() - began)
        return handler.is_kept

    def read(self, handler: BoundedHandler) -> Any:
        """Return the body of a request: a sample, or a list of samples.

        Raises: BadRequestError: the request exceeds a limit, or is no JSON.
        """
        if handler.path.partition("?")[0] != "/":
            raise BadRequestError(HTTPStatus.NOT_FOUND, "samples are posted to /")
        body = handler.read_body(self._limits.body_bytes, "the body of a request")
        try:
            found = parse_value(body, depth=DEPTH, values=self._limits.values)
        except BoundedJsonError as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, f"the request has a body {error}") from error
        if isinstance(found, list) and not 1 <= len(found) <= self._limits.samples:
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if found else HTTPStatus.BAD_REQUEST
            raise BadRequestError(
                status, f"the list has {len(found)} samples; it must have 1 to {self._limits.samples}"
            )
        return found

    def answer(self, request: Any) -> str:
        """Return the answer to the body of a request.

        Raises: BadRequestError: a sample is wrong, or the answer is not ready in time.
        """
        try:
            found = self._batcher.ask(request if isinstance(request, list) else [request])
        except DataError as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        except LateError as error:
            raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        except PaddleError as error:
            raise BadRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error
        shown = [[array.tolist() for array in arrays] for arrays in found]
        shown = [arrays[0] if len(arrays) == 1 else arrays for arrays in shown]
        data = shown if isinstance(request, list) else shown[0]
        try:
            return dump_compact({"code": 0, "message": "success", "data": data})
        except ValueError as error:
            raise BadRequestError(
                HTTPStatus.INTERNAL_SERVER_ERROR, "an output is not a finite number; check the sample and the model"
            ) from error


class _Handler(BoundedHandler):
    """Answers a POST.

    Args: is_allowed: whether the request is within the limit of requests. See `BoundedHandler`.
    """

    server: Service

    def __init__(self, request: Any, client_address: Any, server: Any, data: bytes, *, is_allowed: bool) -> None:
        self._is_allowed = is_allowed
        self.status = 0
        super().__init__(request, client_address, server, data)

    def do_POST(self) -> None:
        """Answer with one line of JSON."""
        try:
            if not self._is_allowed:
                raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "there are too many requests; try again later")
            request = self.server.read(self)
        except BadRequestError as error:
            self.close_connection = True  # the rest of the body may still come
            self._send(error.status, _say(error))
            self._discard()
            return
        try:
            self._send(HTTPStatus.OK, self.server.answer(request))
        except BadRequestError as error:
            self._send(error.status, _say(error))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer to a head that the library refuses."""
        self.close_connection = True
        self._send(HTTPStatus(code), _say(message or HTTPStatus(code).phrase))

    def _send(self, status: HTTPStatus, text: str) -> None:
        self.status = int(status)
        is_kept = not self.close_connection
        self.wfile.write(make_answer(status, f"{text}\n".encode(), JSON, is_kept=is_kept))

    def _discard(self) -> None:
        """Read the rest of a refused body: unread bytes would make the kernel reset the connection."""
        deadline, left = time.monotonic() + BODY_S, DISCARDED_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := deadline - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                received = len(self.connection.recv(1 << 16))
                if not received:
                    return
                left -= received


def _say(problem: object) -> str:
    return dump_compact({"code": -1, "message": " ".join(str(problem).split("\n"))})

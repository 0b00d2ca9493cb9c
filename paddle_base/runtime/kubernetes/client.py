"""A client of the Kubernetes API, which lists and watches objects and sends other requests, within limits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from paddle_base.runtime import glog
from paddle_base.runtime.bounded_json import BoundedJsonError, parse_bounded
from paddle_base.runtime.errors import ApiForbiddenError, ConfigError, PaddleError, PeerUnreachableError
from paddle_base.runtime.kubernetes.account import ACCOUNT, read_text
from paddle_base.runtime.kubernetes.answers import (
    ANSWER_LIMIT,
    REQUEST_TIMEOUT_S,
    ApiAnswer,
    describe_failure,
    parse_retry_after,
)
from paddle_base.runtime.kubernetes.text import one_line
from paddle_base.runtime.network.answers import UNTRANSLATED, TimedSession, read_answer, read_lines
from paddle_base.runtime.network.redaction import Secrets, redact_bytes
from paddle_base.runtime.regular_files import open_regular

PAGE = 500  # maximum number of objects in a page of a list
PAGES = 2000
EVENT_LIMIT = 4 << 20  # maximum bytes of a watch event; etcd stores at most 1.5 MiB for an object
DEPTH, VALUES = 64, 4_000_000
WATCH_S = 30  # seconds of one watch; a lost connection is detected after at most this time
OPENED = "OPENED"  # the type of an event that marks the start of a watch; Kubernetes has no such type


class ApiProblem(Exception):
    """A request that failed or had an unusable answer. `status`: the HTTP status, or 0 without an answer."""

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    @property
    def is_refusal(self) -> bool:
        """Whether the API server refuses this service account."""
        return self.status in (401, 403)

    def to_error(self, advice: str) -> PaddleError:
        """Return the error with which the program ends if the problem persists.

        `advice`: what to do if rights are missing.
        """
        if isinstance(self.__cause__, ConfigError):  # a file of the service account has become unusable
            return self.__cause__
        if self.is_refusal:
            return ApiForbiddenError(f"{self}. {advice}")
        if self.status in (0, 429) or self.status >= 500:
            return PeerUnreachableError(f"{self}; check the API server and KUBERNETES_SERVICE_HOST")
        return ConfigError(f"{self}; check which program answers at KUBERNETES_SERVICE_HOST")


@dataclass(frozen=True)
class ApiPlace:
    """The address of the API server, and the directory of the service account: token, ca.crt, namespace."""

    host: str
    port: str
    account: Path

    @property
    def url(self) -> str:
        """The common prefix of all URLs."""
        return f"https://[{self.host}]:{self.port}" if ":" in self.host else f"https://{self.host}:{self.port}"

    @property
    def namespace(self) -> str:
        """The namespace of the service account, or "" if it is unknown. Raises: ConfigError: see read_text."""
        return read_text(self.account / "namespace") or ""


def find_place(environ: Mapping[str, str]) -> ApiPlace:
    """Return the API server's address from the environment of a pod.

    Raises: ConfigError: there is no address, or the token of the service account is unusable.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host or not port.isdecimal():
        raise ConfigError(
            f"KUBERNETES_SERVICE_HOST is {host!r} and its port {port!r}: this program does not run in a pod; start it "
            "in a pod, or set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT to the API server, and "
            "SERVICE_ACCOUNT_DIR to a directory with token, ca.crt and namespace"
        )
    place = ApiPlace(host, port, Path(environ.get("SERVICE_ACCOUNT_DIR") or ACCOUNT))
    read_text(place.account / "token")
    return place


class ApiClient:
    """Requests to the API server. Only one thread at a time may use a client. No answer or error has the token.

    Every method raises ApiProblem if its request fails or has an unusable answer.
    Args: secrets: collects the tokens, for programs that also remove them from their logs.
    """

    def __init__(self, place: ApiPlace, secrets: Secrets | None = None) -> None:
        self.session: requests.Session = TimedSession()
        self._place, self._secrets = place, secrets or Secrets()
        self._token = ""  # of the last request
        self.answer_date = ""  # content of the Date header of the last answer

    def list_all(
        self, path: str, take: Callable[[dict[str, Any]], None], options: Mapping[str, str] | None = None
    ) -> str:
        """Pass each object of a list to `take`; return the version at which a watch can begin.

        `options`: query parameters of the URL.
        """
        token, version = "", ""
        for _ in range(PAGES):
            query = {"limit": str(PAGE), **(options or {})} | ({"continue": token} if token else {})
            page = self.ask("GET", path, query=query)
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            if not isinstance(items, list) or not isinstance(metadata, dict):
                raise ApiProblem(f"{self._place.url}{path} answered something that is not a list", 400)
            for item in items:
                take(item)
            version, token = str(metadata.get("resourceVersion") or ""), str(metadata.get("continue") or "")
            if not token:
                return version
        raise ApiProblem(f"{self._place.url}{path} sends a list without end: {PAGES} pages and more", 400)

    def watch(self, path: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (OPENED, {}), then (type, object) for each change after a version, for at most WATCH_S."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
            "allowWatchBookmarks": "true",
        }
        with self._open("GET", path, query, None, WATCH_S + REQUEST_TIMEOUT_S, packing="identity") as response:
            if response.status_code != 200:
                raise self._problem("GET", path, self._read(response, path))
            yield OPENED, {}
            for line in self._lines(response, path):
                event = self._parse(line, path)
                found = event.get("object")
                if isinstance(found, dict):
                    yield str(event.get("type")), found

    def ask(
        self, method: str, path: str, body: object = None, *, query: Mapping[str, str] | None = None, kind: str = "json"
    ) -> dict[str, Any]:
        """Send a request, and return the object in the answer.

        `kind`: type of the request body, `json` or `json-patch+json`.
        """
        with self._open(method, path, query or {}, body, REQUEST_TIMEOUT_S, kind=kind) as response:
            answer = self._read(response, path)
        self.answer_date = answer.headers.get("Date", "")
        if not 200 <= answer.status_code < 300:
            raise self._problem(method, path, answer)
        return self._parse(answer.body, path)

    def get(self, path: str, query: Mapping[str, str], limit_s: float) -> ApiAnswer:
        """Return the answer to a GET, whatever its status. Args: limit_s: seconds for the whole answer."""
        with self._open("GET", path, query, None, limit_s) as response:
            return self._read(response, path)

    def redact_parsed(self, value: Any, body: bytes) -> Any:
        """Return the JSON value of an answer without tokens, even if its body had a token with JSON escapes."""
        return self._secrets.redact_value(value) if b"\\u" in body or b"\\/" in body else value

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        limit: float,
        *,
        kind: str = "json",
        packing: str = "gzip",
    ) -> Any:
        url = self._place.url + path
        try:
            token = self._token = read_text(self._place.account / "token") or ""  # Kubernetes replaces it every hour
            authority = self._authority(url)
        except ConfigError as problem:  # the next files may be usable
            raise ApiProblem(str(problem)) from problem
        self._secrets.keep(token)
        headers = {"Accept": "application/json", "Accept-Encoding": packing}
        headers |= {"Content-Type": f"application/{kind}"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        try:
            return self.session.request(
                method,
                url,
                params=dict(query),
                data=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=(min(REQUEST_TIMEOUT_S, limit), limit),
                verify=authority,
                allow_redirects=False,  # the API sends none; the token goes to no other address
                stream=True,  # the caller bounds the size and the time of the body
            )
        except (requests.RequestException, UNTRANSLATED, OSError) as problem:
            raise self._silence(path, problem) from problem

    def _authority(self, url: str) -> str | bool:
        """Return the CA file of the API server, or True for the authorities of `requests`.

        Raises: ConfigError: the file cannot be read.
        """
        authority = self._place.account / "ca.crt"
        if not os.path.lexists(authority):
            return True
        try:
            open_regular(authority).close()  # requests would wait for the writer of a named pipe
        except OSError as problem:
            raise ConfigError(f"cannot send a request to {url}: {problem}") from problem
        return str(authority)

    def _silence(self, path: str, problem: BaseException) -> ApiProblem:
        return ApiProblem(f"the API server does not answer at {self._place.url}{path}: {self._describe(problem)}")

    def _describe(self, problem: BaseException) -> str:
        return describe_failure(problem, lambda text: glog.clean(self._secrets.redact(text)))

    def _read(self, response: Any, path: str) -> ApiAnswer:
        packing = self._secrets.redact(response.headers.get("Content-Encoding", ""))
        try:
            body = redact_bytes(read_answer(response.raw, packing, ANSWER_LIMIT), self._token)
        except (requests.RequestException, UNTRANSLATED, OSError) as problem:
            raise self._silence(path, problem) from problem
        except ValueError as problem:
            raise ApiProblem(
                f"{self._place.url}{path} answered something that cannot be read: {problem}", 400
            ) from problem
        return ApiAnswer(response.status_code, response.headers, body)

    def _lines(self, response: Any, path: str) -> Iterator[bytes]:
        try:
            for line in read_lines(response.raw, EVENT_LIMIT):
                yield redact_bytes(line, self._token)
        except (requests.RequestException, UNTRANSLATED, OSError) as problem:
            raise self._silence(path, problem) from problem
        except ValueError as problem:
            raise ApiProblem(f"{self._place.url}{path} sent an event that cannot be read: {problem}", 400) from problem

    def _parse(self, body: bytes, path: str) -> dict[str, Any]:
        try:
            return dict(self.redact_parsed(parse_bounded(body, depth=DEPTH, values=VALUES), body))
        except BoundedJsonError as problem:
            raise ApiProblem(f"{self._place.url}{path} answered something {problem}", 400) from problem

    def explain(self, answer: ApiAnswer) -> str:
        """Return the status of an answer and the reason in it, for an error message."""
        try:
            reason = str(self._parse(answer.body, "").get("message") or "")
        except ApiProblem:
            reason = ""
        return f"the API server answered {answer.status_code}: {one_line(reason) or answer.beginning or 'empty answer'}"

    def _problem(self, method: str, path: str, answer: ApiAnswer) -> ApiProblem:
        wait = parse_retry_after(answer.headers.get("Retry-After"))
        return ApiProblem(f"{method} {path}: {self.explain(answer)}", answer.status_code, wait)

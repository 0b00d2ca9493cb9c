"""Send requests to the etcd at `--etcd_endpoints`, over HTTP with etcd3gw; any member of etcd may answer a request."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception
from etcd3gw.lease import Lease

from paddle_base.registry.etcd_access import EtcdAccess, read_body
from paddle_base.runtime import glog
from paddle_base.runtime.bounded_json import BoundedJsonError, parse_bounded
from paddle_base.runtime.errors import PeerUnreachableError, UsageError
from paddle_base.runtime.network.answers import UNTRANSLATED, read_lines
from paddle_base.runtime.network.causes import find_cause
from paddle_base.runtime.network.redaction import SHORTEST_SECRET, Secrets

REQUEST_S = 5.0  # maximum seconds until one endpoint answers a request
FIRST_S = 15.0  # seconds for which a program's first request, and a write without a claim, are repeated
PAUSE_S = 0.3  # seconds between two attempts to get an answer
WATCH_S = 1.0  # maximum seconds of one watch; the read before the next watch finds the changes between two watches
PAGE = 10_000  # maximum keys that one answer may contain
EVENT_LIMIT = 4 << 20  # maximum bytes of an event; etcd stores at most 1.5 MiB for a request, and divides longer events
LEAST_TTL_S = 2  # minimum duration of a lease in seconds; etcd lengthens shorter leases

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] [^'\"()]+|Read timed out|timed out")
# in etcd's answer; tokens end after five minutes and with their member, and a JWT token at each change of the users
_INVALID_TOKEN = re.compile("invalid auth token|revision of auth store is old")
# what a request and the reading of its answer raise. OSError: also the library's errors, and a certificate file that is
# gone; from LookupError: an answer that is not what etcd writes
_FAILURES = (
    *(Etcd3Exception, UNTRANSLATED, OSError, ValueError),
    *(LookupError, TypeError, AttributeError, RecursionError),
)
_Result = TypeVar("_Result")


class EtcdEndpoints:
    """The members of an etcd; any member may answer a request.

    Thread safety: any thread may use `call`.

    Args: endpoints: addresses of the form http://host:port.  access: what this program proves to etcd; None: what the
        environment says.
    Raises: UsageError: an endpoint is malformed.  ConfigError: see `EtcdAccess`.
    """

    def __init__(self, endpoints: Sequence[str], access: EtcdAccess | None = None) -> None:
        self._places = [read_endpoint(one) for one in endpoints]
        self._access = EtcdAccess.of(os.environ) if access is None else access
        for number, (protocol, _, _) in enumerate(self._places):
            self._access.check(protocol, self.name(number))
        self._secrets = Secrets()
        self._secrets.keep(self._access.password)
        self._chosen = 0
        self._local = threading.local()  # an HTTP session belongs to one thread

    def call(self, work: Callable[[Etcd3Client], _Result], patience: float = 0.0) -> _Result:
        """Return the result of `work` for the client of the first endpoint that answers; `work` may run several times.

        Args: work: function that sends a request through a client.  patience: seconds for which the attempts are
            repeated; 0: each endpoint is tried once.
        Raises: PeerUnreachableError: no endpoint has answered; the text contains the reasons.
        """
        until = time.monotonic() + patience
        while True:
            troubles = []
            for _ in self._places:
                chosen = self._chosen
                try:
                    return self._work(work, chosen)
                except _FAILURES as exc:
                    troubles.append(f"{self.name(chosen)}: {_describe(exc, self._secrets, self._access.password)}")
                    self._chosen = (chosen + 1) % len(self._places)
            if time.monotonic() >= until:
                raise PeerUnreachableError(
                    f"--etcd_endpoints: no etcd answers: {'; '.join(troubles)}; check whether etcd runs there, "
                    "and read its log"
                )
            time.sleep(PAUSE_S)

    def _work(self, work: Callable[[Etcd3Client], _Result], number: int) -> _Result:
        """Return the result of `work`; if etcd no longer knows the token of this user, get another token."""
        try:
            return work(self._client(number))
        except Etcd3Exception as exc:
            if not self._access.user or not _INVALID_TOKEN.search(str(exc.detail_text)):
                raise
            self._clients.pop(number).session.close()
            return work(self._client(number))

    def name(self, number: int) -> str:
        """Return an endpoint as protocol://host:port."""
        return "{}://{}:{}".format(*self._places[number])

    @property
    def names(self) -> str:
        """All endpoints, in the form of the flag `--etcd_endpoints`."""
        return ",".join(map(self.name, range(len(self._places))))

    @property
    def _clients(self) -> dict[int, Etcd3Client]:
        """The clients of this thread, by the number of the endpoint."""
        clients: dict[int, Etcd3Client] = self._local.__dict__.setdefault("clients", {})
        return clients

    def _client(self, number: int) -> Etcd3Client:
        clients = self._clients
        if number not in clients:
            protocol, host, port = self._places[number]
            session = self._access.open_session()
            client = Etcd3Client(
                host=host, port=port, protocol=protocol, timeout=REQUEST_S, api_path="/v3/", session=session
            )
            if self._access.user:
                asked = {"name": self._access.user, "password": self._access.password}
                answer = client.post(client.get_url("/auth/authenticate"), json=asked)
                session.headers["Authorization"] = self._take_token(answer)
            clients[number] = client
        return clients[number]

    def _take_token(self, answer: Any) -> str:
        """Return the token of an answer. Raises: ValueError: it has none that can be sent."""
        token = answer.get("token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
            raise ValueError("the answer to the password has no token that can be sent")
        self._secrets.keep(token)
        return token

    def close(self) -> None:
        """Close this thread's connections."""
        for client in self._clients.values():
            client.session.close()


def read_endpoint(text: str) -> tuple[str, str, int]:
    """Return protocol, host and port of an endpoint; the default port is 2379.

    Raises: UsageError.
    """
    parts = urlsplit(text if "//" in text else f"http://{text}")
    try:
        port = parts.port or 2379
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.path.strip("/"):
        raise UsageError(f"--etcd_endpoints has '{text}'; write each endpoint as http://host:2379")
    return parts.scheme, parts.hostname, port


# ----- Requests and answers of etcd's gateway


def encode(text: str) -> str:
    """Encode a key or value for a request to etcd."""
    return base64.b64encode(text.encode()).decode()


def decode(text: str) -> str:
    """Decode a key or value from an answer of etcd.

    Raises: ValueError: the key or value is not text.
    """
    # A leader that loads its state calls this function a million times; b64decode would take twice as long.
    return binascii.a2b_base64(text).decode()


def made_at(key: str, revision: int) -> dict[str, Any]:
    """Return the condition that a key was created at a revision; revision 0 means that the key does not exist."""
    return {"key": encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}


def lease_at(lease: Lease, etcd: Etcd3Client) -> Lease:
    """Return the lease as an object that sends its requests through the given client."""
    return Lease(lease.id, etcd)


def make_leased(etcd: EtcdEndpoints, key: str, value: str, ttl: int) -> tuple[Lease, int] | None:
    """Create a key that etcd removes when the key's lease expires.

    Return the lease and the revision of the key, or None if the key exists already.

    Args: ttl: duration of the lease in seconds.
    Raises: PeerUnreachableError.
    """
    lease = etcd.call(lambda client: client.lease(ttl))
    put = {"request_put": {"key": encode(key), "value": encode(value), "lease": str(lease.id)}}
    question = {"compare": [made_at(key, 0)], "success": [put], "failure": []}
    revision = etcd.call(lambda client: _read_revision(client.transaction(question)))
    if revision is not None:
        return lease, revision
    revoke(etcd, lease)
    return None


def _read_revision(answer: Any) -> int | None:
    """Return the revision of a transaction, or None if its condition was false."""
    return int(answer["header"]["revision"]) if answer.get("succeeded") else None


def revoke(etcd: EtcdEndpoints, lease: Lease) -> None:
    """End a lease at once; do nothing if etcd does not answer."""
    with contextlib.suppress(PeerUnreachableError):
        etcd.call(lambda client: lease_at(lease, client).revoke())


def watch_once(etcd: EtcdEndpoints, key: str, seconds: float = WATCH_S, *, end: str = "", revision: int = 0) -> None:
    """Wait until a key, or a key in [key, end), may have changed, for at most `seconds` and at most WATCH_S.

    Args: revision: the first revision whose change is waited for; 0: the next change.
    Raises: PeerUnreachableError.
    """
    # etcd sends an answer of many changes in fragments, each of which is smaller than EVENT_LIMIT
    create: dict[str, Any] = {"key": encode(key), "fragment": True}
    create |= {"range_end": encode(end)} if end else {}
    create |= {"start_revision": revision} if revision else {}
    etcd.call(lambda client: _watch(client, {"create_request": create}, min(seconds, WATCH_S)))


def _watch(client: Etcd3Client, question: dict[str, Any], seconds: float) -> None:
    """Wait for the first event of a watch; its answer has `seconds` in all."""
    until, url = time.monotonic() + seconds, client.get_url("/watch")
    try:
        with client.session.post(url, json=question, stream=True, timeout=(REQUEST_S, seconds)) as response:
            if response.status_code != requests.codes["ok"]:
                raise Etcd3Exception(read_body(response).decode(errors="replace"))
            for line in read_lines(response.raw, EVENT_LIMIT):
                if parse_bounded(line, depth=16, values=1_000_000).get("result", {}).get("events"):
                    return
    except (requests.ReadTimeout, UNTRANSLATED, OSError) as problem:
        if not isinstance(find_cause(problem), TimeoutError):
            raise
    # etcd has ended the watch: a caller that reads at once, and watches again, would not wait between its reads
    time.sleep(max(0.0, until - time.monotonic()))


def _describe(exc: Exception, secrets: Secrets, password: str = "") -> str:
    """Return the text of an error, without what this program has sent to prove who it is."""
    cause = find_cause(exc)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return glog.clean(f"its certificate is refused: {cause.verify_message}", 400)
    if isinstance(cause, ssl.SSLError):
        return glog.clean(cause, 400)
    detail = str(getattr(exc, "detail_text", None) or exc) or type(exc).__name__
    with contextlib.suppress(BoundedJsonError):
        found = secrets.redact_value(parse_bounded(detail.encode(errors="replace"), depth=8, values=1000))
        message = found.get("message")
        detail = message if isinstance(message, str) else json.dumps(found)
    detail = secrets.redact(detail)
    system = _SYSTEM_ERROR.search(detail)  # the library `requests` puts the system's message into a long text
    if system is None and password and len(password) < SHORTEST_SECRET and password in detail:
        return f"{type(exc).__name__}, whose text is not shown because it has the password"
    return glog.clean(system[0] if system else detail, 200)

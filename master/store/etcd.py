"""etcd as a store: `--etcd_endpoints`, spoken to by etcd3gw over HTTP.

    /JOB/master/lock      made by the leader, with its lease: etcd removes it when the leader renews no more
    /JOB/master/addr      "host:port" of the leader, with the same lease
    /JOB/master/...       the state, see `tasks.encoding`

Every write is a transaction on the condition that the lock is still the one that this leader has made (its revision is
the leader's token): etcd itself refuses what a former leader writes. A transaction has at most MOST_WRITES keys, since
etcd takes 128 operations by default; longer commits are several, in order.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception, WatchTimedOut
from etcd3gw.lease import Lease

from master.store.interface import Leadership, Write
from runtime import glog
from runtime.errors import LeadershipLostError, PeerUnreachableError, UsageError

REQUEST_S = 5.0  # that one endpoint may take to answer
FIRST_S = 15.0  # that some endpoint must have answered within, when a master or trainer begins
PAUSE_S = 0.3  # between two trials
WATCH_S = 1.0  # of one watch; what happens between two of them is seen by the look in between
MOST_WRITES, MOST_BYTES = 120, 1 << 20  # of a transaction; etcd's default bounds are 128 and 1.5 MiB
PAGE = 10_000  # keys that are read by one request
LEAST_TTL_S = 2  # of a lease; etcd lengthens shorter ones

_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] [^'\"()]+|Read timed out|timed out")
_Result = TypeVar("_Result")


class EtcdEndpoints:
    """The members of an etcd, of which any may answer.

    Thread safety: `call` may be used from any thread.

    Args: endpoints: http://host:port each.
    Raises: UsageError: one of them is none.
    """

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._places = [read_endpoint(one) for one in endpoints]
        self._chosen = 0
        self._local = threading.local()  # a session of requests belongs to one thread

    def call(self, work: Callable[[Etcd3Client], _Result], patience: float = 0.0) -> _Result:
        """Return what `work` does with the first endpoint that answers; it may be done twice.

        Args: patience: seconds in which trials are repeated; without it each endpoint is tried once.
        Raises: PeerUnreachableError: none has answered; it says why.
        """
        until = time.monotonic() + patience
        while True:
            troubles = []
            for _ in self._places:
                chosen = self._chosen
                try:
                    return work(self._client(chosen))
                except WatchTimedOut:
                    raise
                except (Etcd3Exception, requests.RequestException, ValueError, KeyError) as exc:
                    troubles.append(f"{self.name(chosen)}: {_describe(exc)}")
                    self._chosen = (chosen + 1) % len(self._places)
            if time.monotonic() >= until:
                raise PeerUnreachableError(f"--etcd_endpoints: no etcd answers: {'; '.join(troubles)}")
            time.sleep(PAUSE_S)

    def name(self, number: int) -> str:
        """Return an endpoint as people write it."""
        return "{}://{}:{}".format(*self._places[number])

    def _client(self, number: int) -> Etcd3Client:
        clients: dict[int, Etcd3Client] = self._local.__dict__.setdefault("clients", {})
        if number not in clients:
            protocol, host, port = self._places[number]
            clients[number] = Etcd3Client(host=host, port=port, protocol=protocol, timeout=REQUEST_S, api_path="/v3/")
        return clients[number]

    def close(self) -> None:
        """Close this thread's connections."""
        for client in self._local.__dict__.get("clients", {}).values():
            client.session.close()


def read_endpoint(text: str) -> tuple[str, str, int]:
    """Return protocol, host and port of an endpoint; without a port it is 2379.

    Raises: UsageError.
    """
    parts = urlsplit(text if "//" in text else f"http://{text}")
    try:
        port = parts.port or 2379
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.path.strip("/"):
        raise UsageError(f"--etcd_endpoints has '{text}'; write each as http://host:2379")
    return parts.scheme, parts.hostname, port


class EtcdStore:
    """The keys of one job in an etcd.

    Args: ttl: seconds after which a leader that renews no more has lost it.
    """

    def __init__(self, endpoints: Sequence[str], job: str, ttl: float = 10.0) -> None:
        self._etcd = EtcdEndpoints(endpoints)
        self._prefix = f"/{job}/master/"
        self._ttl = max(LEAST_TTL_S, math.ceil(ttl))

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """See `LeaderStore`."""
        lock = f"{self._prefix}lock"
        self._etcd.call(lambda etcd: etcd.get(lock), FIRST_S)
        has_noted = False
        while not is_stopped():
            try:
                leadership = self._try(lock)
                if leadership is not None:
                    return leadership
                if not has_noted:
                    has_noted = True
                    note(f"the master at {self.find() or 'an address to come'} leads; this master stands by")
                self._watch(lock)
            except PeerUnreachableError as exc:
                note(f"this master stands by, and waits for etcd: {exc}")
                time.sleep(PAUSE_S)
        return None

    def find(self) -> str:
        """See `AddressBook`."""
        values: list[bytes] = self._etcd.call(lambda etcd: etcd.get(f"{self._prefix}addr"))  # type: ignore[assignment]
        return values[0].decode(errors="replace") if values else ""

    def wait(self, known: str, timeout: float) -> str:
        """See `AddressBook`."""
        until = time.monotonic() + timeout
        while (found := self.find()) in ("", known) and (left := until - time.monotonic()) > 0:
            self._watch(f"{self._prefix}addr", left)
        return found

    def close(self) -> None:
        """See `LeaderStore`."""
        self._etcd.close()

    def _try(self, lock: str) -> Leadership | None:
        began = time.monotonic()
        lease = self._etcd.call(lambda etcd: etcd.lease(self._ttl))
        condition = {"key": _encode(lock), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        put = {"request_put": {"key": _encode(lock), "value": _encode("leader"), "lease": str(lease.id)}}
        answer = self._etcd.call(
            lambda etcd: etcd.transaction({"compare": [condition], "success": [put], "failure": []})
        )
        if answer.get("succeeded"):
            token = int(answer["header"]["revision"])
            return EtcdLeadership(self._etcd, self._prefix, lease, token, began + self._ttl)
        with contextlib.suppress(PeerUnreachableError):
            self._etcd.call(lambda etcd: _renewed(lease, etcd).revoke())
        return None

    def _watch(self, key: str, seconds: float = WATCH_S) -> None:
        """Return when a key may have changed, at the latest after some seconds."""
        with contextlib.suppress(WatchTimedOut):
            self._etcd.call(lambda etcd: etcd.watch_once(key, timeout=min(seconds, WATCH_S)))


class EtcdLeadership:
    """See `Leadership`. The token is the revision at which the lock was made.

    Thread safety: `renew` may be called beside the others.
    """

    def __init__(self, etcd: EtcdEndpoints, prefix: str, lease: Lease, token: int, valid_until: float) -> None:
        self.token = token
        self._etcd, self._prefix, self._lease = etcd, prefix, lease
        self._ttl = valid_until - time.monotonic()
        self._valid_until = valid_until
        self._condition = {
            "key": _encode(f"{prefix}lock"),
            "target": "CREATE",
            "result": "EQUAL",
            "create_revision": str(token),
        }

    def load(self) -> Iterable[tuple[str, str]]:
        """See `Leadership`."""
        skip, own = len(self._prefix), (f"{self._prefix}lock", f"{self._prefix}addr")
        for key, value in self._read_all():
            if key not in own:
                yield key[skip:], value

    def commit(self, writes: Sequence[Write]) -> None:
        """See `Leadership`."""
        for some in split_writes(writes):
            self._commit([self._operation(key, value) for key, value in some.items()])

    def publish(self, address: str) -> None:
        """See `Leadership`."""
        put = {"key": _encode(f"{self._prefix}addr"), "value": _encode(address), "lease": str(self._lease.id)}
        self._commit([{"request_put": put}])

    def renew(self) -> None:
        """See `Leadership`."""
        began = time.monotonic()
        left = self._etcd.call(lambda etcd: _renewed(self._lease, etcd).refresh())
        if left <= 0:
            raise LeadershipLostError(f"the lease of this master, leader {self.token}, has ended: another one may lead")
        self._valid_until = began + self._ttl

    def resign(self) -> None:
        """See `Leadership`."""
        with contextlib.suppress(PeerUnreachableError):
            self._etcd.call(lambda etcd: _renewed(self._lease, etcd).revoke())

    # -----

    def _operation(self, key: str, value: str | None) -> dict[str, Any]:
        name = _encode(self._prefix + key)
        if value is None:
            return {"request_delete_range": {"key": name}}
        return {"request_put": {"key": name, "value": _encode(value)}}

    def _commit(self, operations: list[dict[str, Any]]) -> None:
        """Do some operations in one transaction, as long as this leader may; done twice they are as done once.

        Raises: LeadershipLostError: etcd refuses, or has not answered until the lease has ended.
        """
        transaction = {"compare": [self._condition], "success": operations, "failure": []}
        try:
            left = max(0.0, self._valid_until - time.monotonic())
            answer = self._etcd.call(lambda etcd: etcd.transaction(transaction), left)  # type: ignore[arg-type]
        except PeerUnreachableError as exc:
            raise LeadershipLostError(
                f"this master, leader {self.token}, could not write for a whole lease: {exc}"
            ) from exc
        if not answer.get("succeeded"):
            raise LeadershipLostError(
                f"etcd refuses the writes of this master, leader {self.token}: its lock is gone, another one may lead"
            )

    def _read_all(self) -> Iterator[tuple[str, str]]:
        start, end = self._prefix, f"{self._prefix[:-1]}0"  # "0" comes after "/"
        while True:
            page = self._read_page(start, end)
            pairs = page.get("kvs", [])
            for pair in pairs:
                yield _decode(pair["key"]), _decode(pair.get("value", ""))
            if not page.get("more") or not pairs:
                return
            start = _decode(pairs[-1]["key"]) + "\0"

    def _read_page(self, start: str, end: str) -> dict[str, Any]:
        question = {"key": _encode(start), "range_end": _encode(end), "limit": PAGE}
        left = max(0.0, self._valid_until - time.monotonic())
        page: dict[str, Any] = self._etcd.call(lambda etcd: etcd.post(etcd.get_url("/kv/range"), json=question), left)
        return page


def split_writes(writes: Iterable[Write]) -> Iterator[dict[str, str | None]]:
    """Yield writes in parts for one transaction each, in order; a key that comes twice in a part has its last value."""
    part: dict[str, str | None] = {}
    size = 0
    for key, value in writes:
        grows = 2 * (len(key) + len(value or ""))  # base64, and the names around it
        if part and (len(part) >= MOST_WRITES or size + grows > MOST_BYTES):
            yield part
            part, size = {}, 0
        part[key] = value
        size += grows
    if part:
        yield part


def _renewed(lease: Lease, etcd: Etcd3Client) -> Lease:
    """Return a lease as this endpoint and thread speak of it."""
    return Lease(lease.id, etcd)


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()


def _describe(exc: Exception) -> str:
    detail = getattr(exc, "detail_text", None) or str(exc) or type(exc).__name__
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        detail = json.loads(detail)["message"]
    system = _SYSTEM_ERROR.search(detail)  # requests wraps it into a page of words
    return glog.clean(system[0] if system else detail, 200)

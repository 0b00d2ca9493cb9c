"""A store in etcd (`--etcd_endpoints`), which the library etcd3gw reaches over HTTP.

    /JOB/master/lock      the claim of the leader (see `paddle_base.registry.etcd`)
    /JOB/master/addr      "host:port" of the leader, with the same lease
    /JOB/master/...       the state, see `tasks.encoding`

Every write is a transaction through the claim, so etcd itself refuses the writes of a former leader. A transaction has
at most MOST_WRITES keys, because etcd's default limit is 128 operations. A longer commit consists of several
transactions, in order.
"""

from __future__ import annotations

import base64
import concurrent.futures
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from paddle_base.registry.endpoints import decode, encode
from paddle_base.registry.etcd import EtcdClaim, EtcdRegistry, put_of
from paddle_base.registry.interface import LEADER
from paddle_base.runtime.errors import DamagedError, PeerUnreachableError
from paddle_cluster.master.store.interface import MOST_JOBS, Leadership, MasterStore, Write

_STATE, ADDRESS = "master/", "master/addr"
MOST_WRITES, MOST_BYTES = 120, 1 << 20  # limits of a transaction; etcd's defaults are 128 operations and 1.5 MiB
# Maximum keys in one read of a leader. Each key takes about 300 bytes. In each read, etcd also counts the keys that
# follow. Reading a million keys in pages of 10,000 therefore takes twice as long. After a page that is too large or too
# slow for one answer, the pages are smaller.
PAGE, SMALLEST_PAGE = 50_000, 50


class EtcdStore(MasterStore):
    """The keys of one job in an etcd.

    Args: ttl: seconds after which a leader that has not renewed its claim loses the lead.
    """

    def __init__(self, endpoints: Sequence[str], job: str, ttl: float = 10.0) -> None:
        registry = EtcdRegistry(endpoints, job, ttl)
        super().__init__(registry, ADDRESS)
        self._registry: EtcdRegistry = registry

    def campaign(self, is_stopped: Callable[[], bool], note: Callable[[str], None]) -> Leadership | None:
        """See `MasterStore`."""
        self._registry.check()
        return super().campaign(is_stopped, note)

    @property
    def place(self) -> str:
        """See `MasterStore`."""
        return f"--etcd_endpoints={self._registry.etcd.names}"

    def list_jobs(self) -> list[str]:
        """See `MasterStore`."""
        found: list[str] = []
        start = "/0"  # the name of a job begins with a digit or a letter
        for _ in range(MOST_JOBS):
            keys = self._list_first(start, "0")
            if not keys:
                break
            name, slash, _ = keys[0][1:].partition("/")
            if slash and self._list_first(f"/{name}/master/", f"/{name}/master0"):
                found.append(name)
            start = f"/{name}0" if slash else f"{keys[0]}\0"  # skip this job's keys; "0" comes after "/"
        return found

    def _list_first(self, start: str, end: str) -> list[str]:
        """Return a list with the first key in [start, end), or [] if there is no such key."""
        question = {"key": encode(start), "range_end": encode(end), "limit": 1, "keys_only": True}
        return self._registry.etcd.call(lambda etcd: _read_keys(etcd.post(etcd.get_url("/kv/range"), json=question)))

    def _lead(self, claim: EtcdClaim) -> Leadership:
        return EtcdLeadership(claim)


def _read_keys(page: dict[str, Any]) -> list[str]:
    return [base64.b64decode(pair["key"]).decode(errors="replace") for pair in page.get("kvs", [])]


class EtcdLeadership:
    """See `Leadership`."""

    def __init__(self, claim: EtcdClaim) -> None:
        self.claim = claim
        self._prefix = f"{claim.prefix}{_STATE}"
        self._page = PAGE

    def load(self) -> Iterable[tuple[str, str]]:
        """See `Leadership`."""
        skip, own = len(self._prefix), (f"{self.claim.prefix}{LEADER}", f"{self.claim.prefix}{ADDRESS}")
        for key, value in self._read_all():
            if key not in own:
                yield key[skip:], value

    def commit(self, writes: Sequence[Write]) -> None:
        """See `Leadership`."""
        for some in split_writes(writes):
            self.claim.write([self._operation(key, value) for key, value in some.items()])

    def publish(self, address: str) -> None:
        """See `Leadership`."""
        self.claim.write([put_of(self.claim.prefix, ADDRESS, address, self.claim.lease)])

    def resign(self) -> None:
        """See `Leadership`."""
        self.claim.release()

    # -----

    def _operation(self, key: str, value: str | None) -> dict[str, Any]:
        name = encode(self._prefix + key)
        if value is None:
            return {"request_delete_range": {"key": name}}
        return {"request_put": {"key": name, "value": encode(value)}}

    def _read_all(self) -> Iterator[tuple[str, str]]:
        """Yield all keys in order; etcd reads the next page while the caller processes the current page."""
        end = f"{self._prefix[:-1]}0"  # "0" comes after "/"
        with concurrent.futures.ThreadPoolExecutor(1, "etcd-page") as reader:
            coming = reader.submit(self._read_page, self._prefix, end)
            while True:
                page = coming.result()
                pairs = page.get("kvs", [])
                is_last = not page.get("more") or not pairs
                if not is_last:
                    coming = reader.submit(self._read_page, _read_pair(pairs[-1])[0] + "\0", end)
                for pair in pairs:
                    yield _read_pair(pair)
                if is_last:
                    return

    def _read_page(self, start: str, end: str) -> dict[str, Any]:
        question: dict[str, Any] = {"key": encode(start), "range_end": encode(end)}
        while True:
            question["limit"] = self._page
            left = max(0.0, self.claim.valid_until - time.monotonic()) if self._page == SMALLEST_PAGE else 0.0
            try:
                page: dict[str, Any] = self.claim.etcd.call(
                    lambda etcd: etcd.post(etcd.get_url("/kv/range"), json=question), left
                )
                return page
            except PeerUnreachableError:
                if self._page == SMALLEST_PAGE:
                    raise
                self._page = max(self._page // 10, SMALLEST_PAGE)


def _read_pair(pair: dict[str, Any]) -> tuple[str, str]:
    """Return a key and its value.

    Raises: DamagedError: one of them is no text; a master writes only text.
    """
    try:
        return decode(pair["key"]), decode(pair.get("value", ""))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        name = _read_keys({"kvs": [pair]})[0][:200]
        raise DamagedError(
            f"the key {name!r} of etcd, or its value, is no text, so no master has written it; remove "
            "the key (etcdctl del), or begin the job anew under another --job"
        ) from error


def split_writes(writes: Iterable[Write]) -> Iterator[dict[str, str | None]]:
    """Divide writes into transactions, in order. If a transaction repeats a key, the last value counts."""
    part: dict[str, str | None] = {}
    size = 0
    for key, value in writes:
        grows = 2 * (len(key) + len(value or ""))  # the factor 2 allows for base64 and JSON
        if part and (len(part) >= MOST_WRITES or size + grows > MOST_BYTES):
            yield part
            part, size = {}, 0
        part[key] = value
        size += grows
    if part:
        yield part

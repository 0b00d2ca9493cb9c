"""A registry in the etcd at `--etcd_endpoints`.

The key KEY of the job JOB is /JOB/KEY in etcd. A claim has the lease of its owner: etcd removes the claim when the
owner stops renewing the lease. The token of a claim is the revision at which the claim was created.

Each write through a claim is a transaction. Its condition is that the claim still has the same revision, so etcd
refuses the writes of a former owner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etcd3gw.lease import Lease

from paddle_base.registry.endpoints import (
    FIRST_S,
    LEAST_TTL_S,
    PAGE,
    EtcdEndpoints,
    decode,
    encode,
    lease_at,
    made_at,
    make_leased,
    revoke,
    watch_once,
)
from paddle_base.registry.interface import MOST_VALUE_BYTES, Entry, check_key, check_value
from paddle_base.runtime.errors import DamagedError, LeaseLostError, PeerUnreachableError


class EtcdRegistry:
    """The keys of one job in an etcd.

    Args: ttl: seconds after which the claims of a silent process expire.
    Raises: UsageError: an endpoint is malformed.
    """

    def __init__(self, endpoints: Sequence[str], job: str, ttl: float = 5.0) -> None:
        self.etcd = EtcdEndpoints(endpoints)
        self.prefix = f"/{job}/"
        self._ttl = max(LEAST_TTL_S, math.ceil(ttl))

    def check(self) -> None:
        """Wait until etcd answers. Raises: PeerUnreachableError: it does not answer within FIRST_S."""
        self.etcd.call(lambda client: client.get(f"{self.prefix}job/end"), FIRST_S)

    def claim(self, key: str, value: str) -> EtcdClaim | None:
        """See `Registry`."""
        check_value(check_key(key), value)
        began = time.monotonic()
        made = make_leased(self.etcd, self.prefix + key, value, self._ttl)
        return made and EtcdClaim(self.etcd, self.prefix, key, *made, began + self._ttl)

    def read(self, prefix: str) -> dict[str, Entry]:
        """See `Registry`."""
        return self._read(prefix)[0]

    def put(self, key: str, value: str) -> None:
        """See `Registry`."""
        self._write([], [put_of(self.prefix, key, value)])

    def put_new(self, key: str, value: str) -> bool:
        """See `Registry`."""
        return self._write([made_at(self.prefix + key, 0)], [put_of(self.prefix, key, value)])

    def delete(self, key: str) -> None:
        """See `Registry`."""
        self._write([], [{"request_delete_range": {"key": encode(self.prefix + check_key(key))}}])

    def wait(self, prefix: str, known: Mapping[str, Entry], timeout: float) -> dict[str, Entry]:
        """See `Registry`."""
        until = time.monotonic() + timeout
        while True:
            found, revision = self._read(prefix)
            left = until - time.monotonic()
            if found != known or left <= 0:
                return found
            start, end = self._range(prefix)
            watch_once(self.etcd, start, left, end=end, revision=revision + 1)

    def close(self) -> None:
        """See `Registry`."""
        self.etcd.close()

    # -----

    def _range(self, prefix: str) -> tuple[str, str]:
        """Return the first possible key with a prefix, and the first key after all keys with this prefix."""
        start = self.prefix + prefix
        return start, start[:-1] + chr(ord(start[-1]) + 1)

    def _read(self, prefix: str) -> tuple[dict[str, Entry], int]:
        """Return the keys with a prefix, and the revision of etcd at which they were read."""
        start, end = self._range(prefix)
        question = {"key": encode(start), "range_end": encode(end), "limit": PAGE}
        return self.etcd.call(lambda client: self._read_page(client.post(client.get_url("/kv/range"), json=question)))

    def _read_page(self, page: dict[str, Any]) -> tuple[dict[str, Entry], int]:
        if page.get("more"):
            raise DamagedError(
                f"etcd has over {PAGE} keys below {self.prefix}, more than any job makes; use another --job"
            )
        return dict(self._entry_of(pair) for pair in page.get("kvs", [])), int(page["header"]["revision"])

    def _entry_of(self, pair: Mapping[str, Any]) -> tuple[str, Entry]:
        key = "?"
        try:
            key = decode(pair["key"])
            value = decode(pair.get("value", ""))
            if len(value) <= MOST_VALUE_BYTES:
                return key[len(self.prefix) :], Entry(value, int(pair["create_revision"]))
        except (ValueError, LookupError, TypeError):
            pass
        raise DamagedError(
            f"the key {key} of etcd is damaged: it is not what this program writes; remove it if the job may begin anew"
        )

    def _write(self, conditions: list[dict[str, Any]], operations: list[dict[str, Any]]) -> bool:
        question = {"compare": conditions, "success": operations, "failure": []}
        answer = self.etcd.call(lambda client: client.transaction(question), FIRST_S)
        return bool(answer.get("succeeded"))


class EtcdClaim:
    """See `Claim`."""

    def __init__(
        self, etcd: EtcdEndpoints, prefix: str, key: str, lease: Lease, token: int, valid_until: float
    ) -> None:
        self.key, self.token = key, token
        self.etcd, self.prefix, self.lease = etcd, prefix, lease
        self._condition = made_at(prefix + key, token)
        self.ttl = valid_until - time.monotonic()
        self._valid_until = valid_until

    @property
    def valid_until(self) -> float:
        """See `Claim`."""
        return self._valid_until

    def renew(self) -> None:
        """See `Claim`."""
        began = time.monotonic()
        left = self.etcd.call(lambda client: lease_at(self.lease, client).refresh())
        if left <= 0:
            raise self._lost("the claim's lease has ended")
        question = {"compare": [self._condition], "success": [], "failure": []}
        if not self.etcd.call(lambda client: client.transaction(question)).get("succeeded"):
            raise self._lost("the key was removed, or another process holds it")
        self._valid_until = began + self.ttl

    def update(self, value: str) -> None:
        """See `Claim`."""
        self.write([put_of(self.prefix, self.key, value, self.lease)])

    def put(self, key: str, value: str) -> None:
        """See `Claim`."""
        self.write([put_of(self.prefix, key, value)])

    def release(self) -> None:
        """See `Claim`."""
        self._valid_until = float("-inf")
        revoke(self.etcd, self.lease)

    def write(self, operations: list[dict[str, Any]]) -> None:
        """Execute operations in one transaction if this process still holds the claim.

        etcd may execute the transaction twice, with the same result.

        Raises: LeaseLostError: see `Claim.update`.
        """
        question = {"compare": [self._condition], "success": operations, "failure": []}
        left = self._valid_until - time.monotonic()
        if left <= 0:
            raise self._lost("the claim was not renewed in time")
        try:
            answer = self.etcd.call(lambda client: client.transaction(question), left)
        except PeerUnreachableError as exc:
            raise self._lost(f"no write succeeded before the claim expired: {exc}") from exc
        if not answer.get("succeeded"):
            raise self._lost("etcd does not have the key any more, or another process holds the key")

    def _lost(self, why: str) -> LeaseLostError:
        return LeaseLostError(f"this process has lost its claim of {self.prefix}{self.key} in etcd: {why}")


def put_of(prefix: str, key: str, value: str, lease: Lease | None = None) -> dict[str, Any]:
    """Return the operation that writes a key."""
    put = {"key": encode(prefix + check_key(key)), "value": encode(check_value(key, value))}
    return {"request_put": put if lease is None else {**put, "lease": str(lease.id)}}

"""The client by which a worker sends requests to the driver over HTTP.

    client = RendezvousClient("10.0.0.2", 7000, secret, timeout=30.0)
    slot, generation = client.query_rank("host-1", 0, incarnation, generation)

The client repeats a request while the driver does not answer, because a killed driver may be restarted. A repeated
request does no harm.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from paddle_base.runtime import glog
from paddle_base.runtime.backoff import exponential_backoff
from paddle_base.runtime.errors import BugError, ConfigError, PeerUnreachableError
from paddle_base.runtime.schema import Record, SchemaError, Text, Truth, parse_object
from paddle_cluster.elastic.hosts import SlotInfo
from paddle_cluster.elastic.keyvalue.exchange import Exchanged, SignedExchange, UnprovenAnswerError
from paddle_cluster.elastic.keyvalue.signature import STALE
from paddle_cluster.elastic.keyvalue.store import MOST_VALUE_BYTES

GROUP_SCOPE = "group_"  # prefix of the scope in which the workers of a generation publish addresses
GENERATION_HEADER = "X-Paddle-Generation"
# seconds without an acknowledgement after which the driver's host counts as lost; a new host may then have its address
GONE_S = 6
_GOOD = (HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)
_CLAIMED = Record("is_newcomer", holder=Text(MOST_VALUE_BYTES), is_newcomer=Truth())
_LEAVES = Record(leaves=Truth())
_NEWCOMERS = Record(start=Truth())
NEWCOMERS_SCOPE, NEWCOMERS_KEY = "newcomers", "all"
LONGEST_POLL_S = 25.0  # seconds that a single request waits; a longer wait uses several requests


class RendezvousClient:
    """The client of the driver of a job.

    Args: timeout: seconds for which the client repeats an unanswered request.

    Thread safety: every method may be called from any thread.
    Each method raises PeerUnreachableError if the driver does not answer within the timeout, ConfigError if the driver
    rejects the secret, and BugError if the driver rejects the request.
    """

    def __init__(self, address: str, port: int, secret: str = "", timeout: float = 30.0) -> None:
        self.address, self.port, self.timeout = address, port, timeout
        self._exchange = SignedExchange(
            address, port, secret, own_headers=(GENERATION_HEADER.lower(),), most=MOST_VALUE_BYTES, gone_s=GONE_S
        )

    def __repr__(self) -> str:
        return f"RendezvousClient({self.address!r}, {self.port})"

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value."""
        self._ask("PUT", _path(scope, key), value)

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        """Return a value as soon as the value is stored, or None after `wait` seconds."""
        until = time.monotonic() + wait
        while True:
            left = max(0.0, until - time.monotonic())
            status, _, body = self._ask("GET", _path(scope, key), poll=min(left, LONGEST_POLL_S))
            if status == HTTPStatus.OK:
                return body
            if time.monotonic() >= until:
                return None

    def delete(self, scope: str, key: str) -> None:
        """Remove a value; a missing value is no error."""
        self._ask("DELETE", _path(scope, key))

    def query_rank(
        self,
        host: str,
        local_rank: int,
        incarnation: str,
        generation: int,
        wait: float = 600.0,
        has_state: bool = True,
    ) -> tuple[SlotInfo, int]:
        """Report that this worker is ready; return its slot in the next generation, and the number of that generation.

        The call waits until all members of the generation are ready or have ended. A slot with rank -1 means that this
        worker is no member any more.

        Args: generation: the last generation of this worker; 0: this worker is a newcomer, and asks for its first
            place.  wait: maximum seconds of the wait.  has_state: whether this worker has ever had the state of the
            job.
        Raises: PeerUnreachableError: the other workers are not ready within `wait` seconds. See the class for other
            errors.
        """
        until = time.monotonic() + wait
        path = (
            f"{_path('rank_and_size', f'{host}:{local_rank}')}?incarnation={quote(incarnation)}&generation={generation}"
        )
        path += "" if has_state else "&state=0"
        while True:
            left = max(0.0, until - time.monotonic())
            status, headers, body = self._ask("GET", path, poll=min(left, LONGEST_POLL_S))
            if status == HTTPStatus.OK:
                return self._read_rank(host, headers, body)
            if time.monotonic() >= until:
                raise PeerUnreachableError(
                    f"the other workers of generation {generation} were not ready within {wait:g} s; look at their "
                    "logs, or raise --elastic-timeout"
                )

    def claim(self, host: str, local_rank: int, incarnation: str, holder: str) -> tuple[str, bool]:
        """Ask for the place of a worker for a process of this machine.

        Returns: the process that has the place, and whether it is a newcomer, which has to ask for its rank.
        """
        path = _path("places", f"{host}:{local_rank}")
        _, _, body = self._ask("PUT", path, json.dumps({"incarnation": incarnation, "holder": holder}).encode())
        found = self._parse(body, _CLAIMED)
        return str(found["holder"]), bool(found.get("is_newcomer"))

    def leave(self, host: str, local_rank: int, incarnation: str) -> bool:
        """Report that this worker has received SIGTERM; return whether it is to leave at its next commit."""
        path = _path("leaving", f"{host}:{local_rank}")
        _, _, body = self._ask("PUT", path, json.dumps({"incarnation": incarnation}).encode())
        return bool(self._parse(body, _LEAVES)["leaves"])

    def has_newcomers(self) -> bool:
        """Return whether new workers start that have not joined yet."""
        body = self.get(NEWCOMERS_SCOPE, NEWCOMERS_KEY)
        return body is not None and bool(self._parse(body, _NEWCOMERS)["start"])

    def register_addresses(
        self, host: str, local_rank: int, incarnation: str, addresses: Sequence[tuple[str, int]]
    ) -> None:
        """Register the addresses at which this worker receives notices."""
        self._put_json("worker_addresses", host, local_rank, incarnation=incarnation, addresses=list(addresses))

    def heartbeat(
        self,
        host: str,
        local_rank: int,
        incarnation: str,
        generation: int,
        addresses: Sequence[tuple[str, int]] = (),
        holder: str = "",
    ) -> None:
        """Send a heartbeat of this worker.

        Args: addresses: the addresses at which this worker receives notices.  holder: see `claim`. A driver that has
            taken over the job learns both from the heartbeat.
        """
        beat = {"incarnation": incarnation, "generation": generation, "addresses": list(addresses), "holder": holder}
        self._put_json("heartbeat", host, local_rank, **beat)

    def done(self, host: str, local_rank: int, incarnation: str) -> None:
        """Report that this worker has finished its work, so that its exit code 0 means success."""
        self._put_json("done", host, local_rank, incarnation=incarnation)

    @property
    def _name(self) -> str:
        return f"the driver at {self.address}:{self.port}"

    def _read_rank(self, host: str, headers: Mapping[str, str], body: bytes) -> tuple[SlotInfo, int]:
        generation = headers.get(GENERATION_HEADER.lower(), "")
        try:
            return SlotInfo.from_response_string(host, body.decode()), int(generation)
        except ValueError as exc:
            raise PeerUnreachableError(f"{self._name} sends a malformed rank: {glog.clean(exc, 200)}") from exc

    def _parse(self, body: bytes, shape: Record) -> dict[str, Any]:
        """Parse an answer. Raises: PeerUnreachableError: the answer has another form."""
        try:
            return parse_object(body, shape, "the answer", depth=1, values=10)
        except SchemaError as exc:
            raise PeerUnreachableError(f"{self._name} sends a malformed answer: {exc}") from exc

    def _put_json(self, scope: str, host: str, local_rank: int, **fields: object) -> None:
        self._ask("PUT", _path(scope, f"{host}:{local_rank}"), json.dumps(fields).encode())

    def close(self) -> None:
        """Close the connections; a later request opens a new one."""
        self._exchange.close()

    def _ask(self, method: str, path: str, body: bytes = b"", poll: float = 0.0) -> Exchanged:
        """Send a request until the driver answers; return status, headers (names in lower case) and body."""
        if method == "GET":
            path += f"{'&' if '?' in path else '?'}wait={poll:.3f}"
        until = time.monotonic() + self.timeout
        limit = min(self.timeout, 10.0)
        delays = exponential_backoff(0.1, 2.0)
        while True:
            status, found, delay = 0, b"", next(delays)
            try:
                answer = self._exchange.ask(method, path, body, poll + limit, poll + limit)
                status, found, reason = answer.status, answer.body, f"it answers {answer.status}"
            except (OSError, http.client.HTTPException) as exc:
                reason = f"{type(exc).__name__}: {exc}"
                if isinstance(exc, UnprovenAnswerError) and exc.status == HTTPStatus.FORBIDDEN:
                    raise ConfigError(
                        f"{self._name} refuses the secret; driver and worker need the same PADDLE_SECRET"
                    ) from exc
            if status in _GOOD:
                return answer
            # the same request would be refused again; these two statuses alone ask for a repetition
            if 400 <= status < 500 and status not in (HTTPStatus.REQUEST_TIMEOUT, STALE):
                text = glog.clean(found.decode("utf-8", "replace").strip(), 200)
                raise BugError(f"{self._name} refuses {method} {path}: {status} {text}")
            if time.monotonic() + delay >= until:
                raise PeerUnreachableError(
                    f"{self._name} did not answer within {self.timeout:g} s: {glog.clean(reason, 200)}; look at its log"
                )
            time.sleep(delay)


def _path(scope: str, key: str) -> str:
    """Return the path of a key.

    Raises: BugError: the key has characters that are not allowed in a path.
    """
    for part in (scope, key):
        if not part or "/" in part or not part.isascii() or not part.isprintable() or set(part) & set(" ?&#%"):
            raise BugError(f"'{part[:100]}' cannot be a part of a path")
    return f"/{scope}/{key}"

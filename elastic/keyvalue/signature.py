"""Proofs of requests and answers over HTTP: of the job's secret, of freshness, and of the direction.

    X-Paddle-Signature of a request:  EPOCH.SENDER.NUMBER.DIGEST.MAC
    X-Paddle-Signature of an answer:  EPOCH.MAC

The MAC of a request is HMAC-SHA256(secret, "request", epoch, sender, number, method, path with query, digest), one text
a line; the digest is the SHA-256 of the body. So the head of a request alone proves the secret, and a server need not
read the body of anybody else.

Nothing recorded can be used again. Every server has an epoch, a random text that is new with each start. Every client
has a random name, the sender, and numbers its requests. A server answers a request of another epoch, or with a number
that it has seen, with the status 428 and its epoch, and does nothing else; a client repeats such a request with the
right epoch. Requests that were recorded from an earlier job with the same secret, or from an earlier driver, agent or
worker of this job, have another epoch. The MAC of an answer is HMAC-SHA256(secret, "answer", epoch, sender, number,
method, path, status, texts, digest). Because of the sender and the number an answer belongs to one request. The texts
are the values of the project's own headers.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
import secrets
import threading
from collections.abc import Sequence
from typing import NamedTuple

HEADER = "X-Paddle-Signature"
STALE = 428  # the status of an answer to a request whose epoch or number is not fresh
MOST_SENDERS = 1 << 16  # senders whose numbers a server remembers; with one more, it begins a new epoch
WINDOW = 1024  # requests of a sender that may arrive out of order
NO_EPOCH = "0" * 32  # the epoch in the first request of a client
_REQUEST = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{32})\.([0-9]{1,15})\.([0-9a-f]{64})\.([0-9a-f]{64})")
_ANSWER = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})")


class RequestProof(NamedTuple):
    """What the signature of a request covers, besides the secret."""

    epoch: str
    sender: str
    number: int
    digest: str  # hex of the body's SHA-256
    method: str
    path: str

    def header(self, secret: str) -> str:
        """Return the value of HEADER."""
        return f"{self.epoch}.{self.sender}.{self.number}.{self.digest}.{self.mac(secret)}"

    def mac(self, secret: str) -> str:
        """Return the MAC of the request."""
        return _mac(secret, "request", self.epoch, self.sender, str(self.number), self.method, self.path, self.digest)

    def mac_of_answer(self, secret: str, epoch: str, texts: Sequence[str], body: bytes) -> str:
        """Return the MAC of an answer to the request. Args: texts: the status, and the values of own headers."""
        about = (epoch, self.sender, str(self.number), self.method, self.path)
        return _mac(secret, "answer", *about, *texts, digest(body))


class Signer:
    """Signs the requests of one client, and checks the answers. Thread safety: any thread may call any method."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._sender, self._numbers = secrets.token_hex(16), itertools.count(1)
        self._epoch = NO_EPOCH

    def sign(self, method: str, path: str, body: bytes) -> RequestProof:
        """Return a proof of a request that is sent once; a repeated request needs a new proof."""
        return RequestProof(self._epoch, self._sender, next(self._numbers), digest(body), method, path)

    def header(self, proof: RequestProof) -> dict[str, str]:
        """Return the header of a request; without a secret there is none."""
        return {HEADER: proof.header(self._secret)} if self._secret else {}

    def is_answered(self, proof: RequestProof, signature: str, texts: Sequence[str], body: bytes) -> bool:
        """Return whether an answer belongs to a request and proves the secret; note the epoch of the server."""
        if not self._secret:
            return True
        found = _ANSWER.fullmatch(signature)
        if found is None or not _is_equal(found[2], proof.mac_of_answer(self._secret, found[1], texts, body)):
            return False
        self._epoch = found[1]
        return True


class Checker:
    """Checks the requests to one server. Thread safety: any thread may call any method."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._lock = threading.Lock()
        self._epoch = secrets.token_hex(16)
        self._seen: dict[str, tuple[int, int]] = {}  # for each sender: its largest number, and the bits of those below

    def read(self, signature: str, method: str, path: str) -> RequestProof | None:
        """Return the proof of a request, or None if it does not prove the secret."""
        found = _REQUEST.fullmatch(signature)
        if found is None:
            return None
        proof = RequestProof(found[1], found[2], int(found[3]), found[4], method, path)
        return proof if _is_equal(found[5], proof.mac(self.secret)) else None

    def is_fresh(self, proof: RequestProof) -> bool:
        """Return whether a request of the right secret comes for the first time, and note it."""
        with self._lock:
            if proof.epoch != self._epoch:
                return False
            if proof.sender not in self._seen and len(self._seen) >= MOST_SENDERS:
                self._seen.clear()
                self._epoch = secrets.token_hex(16)
                return False
            largest, below = self._seen.get(proof.sender, (0, 0))
            if proof.number > largest:
                below = (below << 1 | 1) << (proof.number - largest - 1) if proof.number - largest <= WINDOW else 0
                self._seen[proof.sender] = proof.number, below & ((1 << WINDOW) - 1)
                return True
            bit = 1 << (largest - proof.number - 1) if proof.number < largest else 0
            if not bit or largest - proof.number > WINDOW or below & bit:
                return False
            self._seen[proof.sender] = largest, below | bit
            return True

    def sign_answer(self, proof: RequestProof, texts: Sequence[str], body: bytes) -> str:
        """Return the value of HEADER of an answer."""
        epoch = self._epoch
        return f"{epoch}.{proof.mac_of_answer(self.secret, epoch, texts, body)}"


def digest(body: bytes) -> str:
    """Return the hex of the SHA-256 of a body."""
    return hashlib.sha256(body).hexdigest()


def _mac(secret: str, *texts: str) -> str:
    return hmac.new(secret.encode(), "\n".join(texts).encode(), hashlib.sha256).hexdigest()


def _is_equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())

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
are the values of the project's own headers. No I/O.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

HEADER = "X-Paddle-Signature"
STALE = 428  # the status of an answer to a request whose epoch or number is not fresh
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


def read_request(secret: str, signature: str, method: str, path: str) -> RequestProof | None:
    """Return the proof of a request, or None if it does not prove the secret."""
    found = _REQUEST.fullmatch(signature)
    if found is None:
        return None
    proof = RequestProof(found[1], found[2], int(found[3]), found[4], method, path)
    return proof if _is_equal(found[5], proof.mac(secret)) else None


def read_answer(secret: str, signature: str, proof: RequestProof, texts: Sequence[str], body: bytes) -> str | None:
    """Return the epoch of the server that has answered a request, or None if the answer does not prove the secret."""
    found = _ANSWER.fullmatch(signature)
    if found is None or not _is_equal(found[2], proof.mac_of_answer(secret, found[1], texts, body)):
        return None
    return found[1]


def digest(body: bytes) -> str:
    """Return the hex of the SHA-256 of a body."""
    return hashlib.sha256(body).hexdigest()


def _mac(secret: str, *texts: str) -> str:
    return hmac.new(secret.encode(), "\n".join(texts).encode(), hashlib.sha256).hexdigest()


def _is_equal(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())

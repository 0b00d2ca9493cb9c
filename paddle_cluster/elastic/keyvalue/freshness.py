"""What both sides remember so that each request is taken once; see `paddle_cluster.elastic.keyvalue.signature`."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Sequence

from paddle_cluster.elastic.keyvalue.signature import HEADER, RequestProof, digest, read_answer, read_request

MOST_SENDERS = 1 << 16  # senders whose numbers a server remembers; with one more, it begins a new epoch
WINDOW = 1024  # requests of a sender that may arrive out of order
NO_EPOCH = "0" * 32  # the epoch in the first request of a client


class Signer:
    """Signs the requests of one client, and checks the answers. Thread safety: any thread may call any method."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._sender, self._numbers = secrets.token_hex(16), itertools.count(1)
        self._epoch = NO_EPOCH

    @property
    def has_epoch(self) -> bool:
        """Whether a server has told its epoch, or asks for none."""
        return not self._secret or self._epoch != NO_EPOCH

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
        epoch = read_answer(self._secret, signature, proof, texts, body)
        self._epoch = epoch or self._epoch
        return epoch is not None


class Checker:
    """Checks the requests to one server. Thread safety: any thread may call any method."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._lock = threading.Lock()
        self._epoch = secrets.token_hex(16)
        self._seen: dict[str, tuple[int, int]] = {}  # for each sender: its largest number, and the bits of those below

    def read(self, signature: str, method: str, path: str) -> RequestProof | None:
        """Return the proof of a request, or None if it does not prove the secret."""
        return read_request(self.secret, signature, method, path)

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

"""Signs the pickles that ranks send each other."""

from __future__ import annotations

import hmac
import json
import secrets
from typing import Any, NamedTuple

import numpy as np

from paddle_base.runtime.errors import ConfigError, DataError
from paddle_cluster.elastic.collectives.group import RankGroup
from paddle_cluster.elastic.collectives.requests import CollectiveKind
from paddle_cluster.elastic.process.objects import dump_object, load_object

NONCE_BYTES, SIGNATURE_BYTES = 16, 32


class PickleSeal(NamedTuple):
    """Signs the pickles of one operation, because the payloads of the ranks' connections are not signed.

    A signature covers the operation and the rank of the sender. So a program that can change packets can neither write
    a pickle of its own nor pass on one of another operation or job. It also covers a nonce of every rank, but the
    nonces are payloads, too, and such a program can bring those of one operation into another one.

    Attributes: operation: kind and name of the operation, and the place of the collective that exchanges the nonces.
        The ranks agree on the place by signed announcements.
    """

    secret: bytes
    operation: bytes
    nonces: bytes

    @classmethod
    def agree(cls, kind: str, name: str | None, group: RankGroup, secret: str) -> PickleSeal:
        """Exchange the nonces with the other ranks of a group, if there are any.

        Args: secret: the secret of the job, or an empty text.
        Raises: ConfigError: the job has no secret.
        """
        if group.size == 1:
            return cls(b"", b"", b"")
        if not secret:
            raise ConfigError(
                "unsafe_pickle=True needs a secret of the job, because any program that can send packets could run "
                "code on this rank: set PADDLE_SECRET_FILE, or send plain data and arrays without unsafe_pickle"
            )
        own = secrets.token_bytes(NONCE_BYTES)
        nonce = np.frombuffer(own, np.uint8)
        handle = group.submit(CollectiveKind.ALLGATHER, nonce, name=name and f"{name}.nonces")
        every = bytearray(group.wait(handle).tobytes())
        every[group.rank * NONCE_BYTES : (group.rank + 1) * NONCE_BYTES] = own  # not what came back
        operation = json.dumps([group.size, kind, name, *handle.place])
        return cls(secret.encode(), operation.encode(), bytes(every))

    def sign(self, sender: int, data: bytes) -> bytes:
        """Return the signature of a pickle that a rank sends."""
        return hmac.digest(self.secret, b"pickle %d\n%b\n" % (sender, self.operation) + self.nonces + data, "sha256")


def dump_sealed(obj: object, sender: int, seal: PickleSeal | None) -> bytes:
    """Return the bytes of an object of this rank, whose number is `sender`; with a seal, its signed pickle."""
    if seal is None:
        return dump_object(obj)
    data = dump_object(obj, unsafe_pickle=True)
    return seal.sign(sender, data) + data


def load_sealed(data: bytes, sender: int, seal: PickleSeal | None) -> Any:
    """Return the object from the bytes of `dump_sealed`.

    Raises: DataError: the bytes are no object, or the sender has not signed them for this operation.
    """
    if seal is None:
        return load_object(data)
    signature, data = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, seal.sign(sender, data)):
        raise DataError(
            f"the pickle of rank {sender} is not the one that it has signed: it was changed on the way; encrypt the "
            "network of the pods"
        )
    return load_object(data, unsafe_pickle=True)

"""Derives the keys of a job's control messages from the job's secret; each program of the job derives the same keys.

The server has a CURVE key pair, and the clients have another pair. A program without the secret does not know the
server's public key, and therefore can neither connect nor imitate the server. The server accepts only the clients' key
(ZAP). Each program derives both pairs at its start. The pairs are never sent unencrypted and never written to a file.

    private key = HKDF-SHA256(secret, salt=SALT, info=b"server" | b"client"), 32 bytes, clamped for X25519

Source: RFC 5869 (HKDF), RFC 7748 section 5 (clamping), rfc.zeromq.org/spec/26 (CURVE) and 27 (ZAP).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from paddle_base.messages.errors import NoCurveError

SALT = b"paddle-on-kubernetes control messages 1"
ZAP_VERSION = b"1.0"
ZAP_DOMAIN = b"paddle"


@dataclass(frozen=True)
class CurveKeys:
    """The key pair of each side; each key has 40 characters of Z85."""

    server_public: bytes
    server_private: bytes = field(repr=False)
    client_public: bytes
    client_private: bytes = field(repr=False)


def derive_keys(secret: str) -> CurveKeys | None:
    """Return the keys of a job, or None if the job has no secret.

    Raises: NoCurveError: this libzmq cannot encrypt.
    """
    if not secret:
        return None
    if not zmq.has("curve"):
        raise NoCurveError(
            f"the job has a secret, and libzmq {zmq.zmq_version()} of this Python has no CURVE to prove the secret; "
            "install pyzmq from its wheel (pip install --only-binary :all: pyzmq)"
        )
    server, client = (z85.encode(derive_private(secret, info)) for info in (b"server", b"client"))
    return CurveKeys(zmq.curve_public(server), server, zmq.curve_public(client), client)


def derive_private(secret: str, info: bytes) -> bytes:
    """Return a private key of 32 bytes."""
    extracted = hmac.new(SALT, secret.encode(), hashlib.sha256).digest()
    key = bytearray(hmac.new(extracted, info + b"\x01", hashlib.sha256).digest())
    key[0] &= 248
    key[31] = key[31] & 127 | 64
    return bytes(key)


def answer_zap(frames: Sequence[bytes], client_public: bytes) -> list[bytes]:
    """Return the answer to libzmq's request to authenticate a peer; a peer with the job's client key is accepted.

    Args: frames: version, request id, domain, address, identity, mechanism and credentials.
    """
    request = frames[1] if len(frames) > 1 else b""
    admitted = (
        len(frames) == 7
        and frames[0] == ZAP_VERSION
        and frames[5] == b"CURVE"
        and hmac.compare_digest(frames[6], z85.decode(client_public))
    )
    status, text = (b"200", b"OK") if admitted else (b"400", b"not this job's client")
    return [ZAP_VERSION, request, status, text, b"", b""]

"""Keys, and the digests of messages that prove a key. Names are those of `horovod.runner.common.util.secret`."""

from __future__ import annotations

import hashlib
import hmac
import os

SECRET_LENGTH = 32  # bytes
DIGEST_LENGTH = hashlib.sha256().digest_size
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"  # a variable that no worker inherits


def make_secret_key() -> bytes:
    """Return a new key."""
    return os.urandom(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 of a message."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Return whether a digest proves the key."""
    return hmac.compare_digest(compute_digest(key, message), digest)

"""The signature of a request to the rendezvous server: whoever makes it knows the job's secret (pure).

    X-Paddle-Signature: hex of HMAC-SHA256(secret, method + "\\n" + path + "\\n" + body)

The path is that of the request line, with its query.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "X-Paddle-Signature"


def sign(secret: str, method: str, path: str, body: bytes) -> str:
    """Return the signature of a request."""
    text = f"{method}\n{path}\n".encode() + body
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_signed(signature: str, secret: str, method: str, path: str, body: bytes) -> bool:
    """Return whether a signature is right; without a secret every request is."""
    return not secret or hmac.compare_digest(signature.encode(), sign(secret, method, path, body).encode())

"""The signature of a request to the rendezvous server: whoever makes it knows the job's secret (pure).

    X-Paddle-Signature: hex of HMAC-SHA256(secret, method + "\\n" + path + "\\n" + body)

The path is that of the request line, with its query.

Of an answer: hex of HMAC-SHA256(secret, "answer " + method + " " + path + "\\n" + status + "\\n" + body)

An agent signs its answers, and the driver puts a number into the path that it has not used before.
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


def sign_answer(secret: str, request: tuple[str, str], status: int, body: bytes) -> str:
    """Return the signature of an answer. Args: request: method and path."""
    text = f"answer {request[0]} {request[1]}\n{status}\n".encode() + body
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_answer_signed(signature: str, secret: str, request: tuple[str, str], status: int, body: bytes) -> bool:
    """Return whether the signature of an answer is right."""
    return hmac.compare_digest(signature.encode(), sign_answer(secret, request, status, body).encode())

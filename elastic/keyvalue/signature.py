"""The signatures of requests and answers of the rendezvous server; a signature proves that its sender knows the secret.

    X-Paddle-Signature: hex of HMAC-SHA256(secret, method + "\\n" + path + "\\n" + body)

The path is the path of the request line with its query.

The signature of an answer is the hex of HMAC-SHA256(secret, "answer " + method + " " + path + "\\n" + texts + "\\n" +
body). The texts are the status and the values of the project's own headers, separated by blanks. A client adds a new
text to every path (`elastic.keyvalue.once`), so it rejects a replayed answer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

HEADER = "X-Paddle-Signature"


def sign(secret: str, method: str, path: str, body: bytes) -> str:
    """Return the signature of a request."""
    text = f"{method}\n{path}\n".encode() + body
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_signed(signature: str, secret: str, method: str, path: str, body: bytes) -> bool:
    """Return whether the signature of a request is right; without a secret every signature is right."""
    return not secret or hmac.compare_digest(signature.encode(), sign(secret, method, path, body).encode())


def sign_answer(secret: str, request: tuple[str, str], texts: Sequence[str], body: bytes) -> str:
    """Return the signature of an answer. Args: request: method and path.  texts: status and header values."""
    text = f"answer {request[0]} {request[1]}\n{' '.join(texts)}\n".encode() + body
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_answer_signed(signature: str, secret: str, request: tuple[str, str], texts: Sequence[str], body: bytes) -> bool:
    """Return whether the signature of an answer is right."""
    return hmac.compare_digest(signature.encode(), sign_answer(secret, request, texts, body).encode())

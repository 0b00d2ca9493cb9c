"""The signature of a request to the rendezvous server: whoever makes it knows the job's secret (pure).

    X-Paddle-Signature: hex of HMAC-SHA256(secret, method + "\\n" + path + "\\n" + body)

The path is that of the request line, with its query.

Of an answer: hex of HMAC-SHA256(secret, "answer " + method + " " + path + "\\n" + texts + "\\n" + body). The texts are
the status and the values of the headers of our own, with blanks between them. A caller puts a text into the path that
it has not used before (`elastic.keyvalue.once`), so that nobody can give it an earlier answer.
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
    """Return whether a signature is right; without a secret every request is."""
    return not secret or hmac.compare_digest(signature.encode(), sign(secret, method, path, body).encode())


def sign_answer(secret: str, request: tuple[str, str], texts: Sequence[str], body: bytes) -> str:
    """Return the signature of an answer. Args: request: method and path.  texts: status, and values of headers."""
    text = f"answer {request[0]} {request[1]}\n{' '.join(texts)}\n".encode() + body
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def is_answer_signed(signature: str, secret: str, request: tuple[str, str], texts: Sequence[str], body: bytes) -> bool:
    """Return whether the signature of an answer is right."""
    return hmac.compare_digest(signature.encode(), sign_answer(secret, request, texts, body).encode())

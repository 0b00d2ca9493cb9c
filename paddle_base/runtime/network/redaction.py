"""Removes secrets from the texts and answers of other programs, which may send back what they have received."""

from __future__ import annotations

import collections
import json
from typing import Any

MOST_SECRETS = 60  # number of secret texts to redact: three forms of each of the last twenty tokens
SHORTEST_SECRET = 8  # minimum characters of a secret text; the redaction of a shorter text would damage messages
REDACTED = "<token>"


def list_forms(text: str) -> list[str]:
    """Return the forms in which an answer may contain a text: unchanged, escaped as in Python, and as in JSON."""
    forms = (text, repr(text)[1:-1], json.dumps(text)[1:-1])
    return [form for form in dict.fromkeys(forms) if len(form) >= SHORTEST_SECRET]


def redact_bytes(content: bytes, secret: str) -> bytes:
    """Return an answer without the secret of its request, before any part of it is cut off."""
    for form in list_forms(secret):
        content = content.replace(form.encode("utf-8", "surrogatepass"), REDACTED.encode())
    return content


class Secrets:
    """Texts that must not appear in logs and files, such as the tokens of a service account, which change every hour.

    Thread safety: any thread may use it.
    """

    def __init__(self) -> None:
        self._forms: collections.deque[str] = collections.deque(maxlen=MOST_SECRETS)

    def keep(self, text: str) -> None:
        """Add a text in its three forms. A text of fewer than SHORTEST_SECRET characters is ignored."""
        self._forms.extend(form for form in list_forms(text) if form not in self._forms)

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in tuple(self._forms):
            text = text.replace(form, REDACTED)
        return text

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value without the secrets in its texts and keys."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self.redact_value(inner) for inner in value]
        if isinstance(value, dict):
            return {self.redact(key): self.redact_value(inner) for key, inner in value.items()}
        return value

"""Paths that no other request has, so that an answer to one request is none to another."""

from __future__ import annotations

import itertools
import secrets


class Once:
    """Adds to a path what no other request has. Thread safety: it may be called from any thread."""

    def __init__(self) -> None:
        self._session, self._numbers = secrets.token_hex(8), itertools.count()

    def __call__(self, path: str) -> str:
        """Return a path with its query."""
        return f"{path}{'&' if '?' in path else '?'}once={self._session}.{next(self._numbers)}"

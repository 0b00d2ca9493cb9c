"""Makes the path of every request unique, so that a signed answer is valid for a single request."""

from __future__ import annotations

import itertools
import secrets


class Once:
    """Adds a unique text to a path. Thread safety: an instance may be called from any thread."""

    def __init__(self) -> None:
        self._session, self._numbers = secrets.token_hex(8), itertools.count()

    def __call__(self, path: str) -> str:
        """Return the path with a unique query."""
        return f"{path}{'&' if '?' in path else '?'}once={self._session}.{next(self._numbers)}"

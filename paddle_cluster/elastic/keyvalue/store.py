"""Keeps values in memory by scope and key, within limits; a reader may wait for a key that is not stored yet."""

from __future__ import annotations

import threading
from collections.abc import Mapping

MOST_VALUE_BYTES = 16 << 20
MOST_BYTES = 256 << 20  # maximum bytes of all values together
MOST_KEYS = 1 << 16


class FullStoreError(Exception):
    """The store has no room for a value, or the value is too large."""


class KeyValueStore:
    """The values of one server.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._scopes: dict[str, dict[str, bytes]] = {}
        self._sizes: dict[str, int] = {}  # by planned scope: number of deleted keys after which the scope is removed
        self._finished: dict[str, set[str]] = {}
        self._bytes = self._keys = 0
        self._is_closed = False

    def plan(self, sizes: Mapping[str, int]) -> None:
        """Remove every value, and plan scopes; the scope s is removed when `sizes[s]` of its keys have been deleted."""
        with self._changed:
            self._scopes, self._sizes, self._finished = {}, dict(sizes), {}
            self._bytes = self._keys = 0

    def get(self, scope: str, key: str, wait: float = 0.0) -> bytes | None:
        """Return a value as soon as the value is stored, or None after `wait` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or key in self._scopes.get(scope, {}), wait)
            return self._scopes.get(scope, {}).get(key)

    def put_first(self, scope: str, key: str, value: bytes) -> bytes:
        """Store a value if the key has none; return the value of the key.

        Raises: see `put`.
        """
        with self._changed:
            if key not in self._scopes.get(scope, {}):
                self.put(scope, key, value)
            return self._scopes[scope][key]

    def put(self, scope: str, key: str, value: bytes) -> None:
        """Store a value.

        Raises: FullStoreError: there is no room for the value.
        """
        with self._changed:
            before = self._scopes.get(scope, {}).get(key)
            size = self._bytes - len(before or b"") + len(value)
            if len(value) > MOST_VALUE_BYTES or size > MOST_BYTES or (before is None and self._keys >= MOST_KEYS):
                raise FullStoreError(f"the store has no room for another {len(value)} bytes")
            self._scopes.setdefault(scope, {})[key] = value
            self._bytes = size
            self._keys += before is None
            self._changed.notify_all()

    def delete(self, scope: str, key: str) -> None:
        """Remove a value; a missing value is no error. A planned scope is removed only as a whole; see `plan`."""
        with self._changed:
            if scope in self._sizes:
                finished = self._finished.setdefault(scope, set())
                finished.add(key)
                if len(finished) < self._sizes[scope]:
                    return
                del self._finished[scope]
                for name in list(self._scopes.get(scope, {})):
                    self._remove(scope, name)
                return
            self._remove(scope, key)

    def _remove(self, scope: str, key: str) -> None:
        value = self._scopes.get(scope, {}).pop(key, None)
        if value is not None:
            self._bytes -= len(value)
            self._keys -= 1
        if not self._scopes.get(scope):
            self._scopes.pop(scope, None)

    def close(self) -> None:
        """Wake every waiting reader."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

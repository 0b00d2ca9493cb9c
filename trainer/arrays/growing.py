"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Growing:
    """A numpy array that grows at its end in amortised constant time."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._store: npt.NDArray[Any] = np.empty((0, *shape), dtype)
        self._length = 0

    def view(self) -> npt.NDArray[Any]:
        """Return the content as a view, which is valid until the next change."""
        return self._store[: self._length]

    def extend(self, items: npt.NDArray[Any]) -> None:
        """Append items."""
        needed = self._length + len(items)
        if needed > len(self._store):
            grown = np.empty((max(needed, 2 * len(self._store)), *self._store.shape[1:]), self._store.dtype)
            grown[: self._length] = self.view()
            self._store = grown
        self._store[self._length : needed] = items
        self._length = needed

    def replace(self, items: npt.NDArray[Any]) -> None:
        """Replace the content by the given items."""
        self._store, self._length = items, len(items)

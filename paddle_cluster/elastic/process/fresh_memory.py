"""New memory for the copies of a state. The system maps large pages of it, in a third of the time of small ones.

numpy asks for large pages only for an array of 4 MiB or more, and most arrays of a model are smaller. No I/O.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

CHUNK_BYTES = 32 << 20
LARGE_BYTES = 4 << 20  # bytes of an array for which numpy itself asks for large pages
SMALL_BYTES = 64 << 10  # bytes of an array below which the allocator mostly has memory that is mapped already
_ALIGNMENT = 64


class FreshMemory:
    """Gives parts of large arrays. A part keeps its whole chunk alive; what is not written takes no memory."""

    def __init__(self) -> None:
        self._chunk = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return an array of bytes, which nobody else has."""
        if not SMALL_BYTES <= nbytes < LARGE_BYTES:
            return np.empty(nbytes, np.uint8)
        if len(self._chunk) < nbytes:
            self._chunk = np.empty(CHUNK_BYTES, np.uint8)
        taken, self._chunk = self._chunk[:nbytes], self._chunk[-(-nbytes // _ALIGNMENT) * _ALIGNMENT :]
        return taken

"""Binary data ("blobs") that trainers store on a server for the next checkpoint, as arrays of bytes.

With S dense services, trainer t stores its blob on service t modulo S. The blob becomes an additional array `own.<t>`
of that service's state, and is restored with the state in the attempt that resumes from the checkpoint. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_base.runtime.errors import BugError
from pserver.wire import protocol

# key in a trainer's part of a checkpoint; its value is true if a signal ends the trainer after the checkpoint
LEAVES = "leaves"
PREFIX = "own."
MAX_BYTES_PER_ELEMENT = 64  # maximum bytes of a blob for each element of the model; an optimiser's state has fewer


class CheckpointBlobs:
    """The blob of each trainer; `whole` contains a blob after its last piece has arrived.

    Args: elements: number of elements of the model, which limits the size of a blob.
    """

    def __init__(self, elements: int) -> None:
        self.whole: dict[int, bytearray] = {}
        self._most = _most_bytes(elements)
        self._arriving: dict[int, tuple[bytearray, set[int]]] = {}

    def add(self, trainer: int, piece: int, length: object, payload: memoryview) -> None:
        """Store a piece of a blob; the first piece contains the length of the whole blob.

        Raises: BugError: the blob has no such piece, or is larger than the limit.
        """
        if piece == 0:
            if not isinstance(length, int) or not 0 <= length <= self._most:
                raise BugError(f"the blob of trainer {trainer} has {length} bytes; at most {self._most} are possible")
            self._arriving[trainer] = (bytearray(length), set(range(protocol.count_pieces(length))))
        data, missing = self._arriving.get(trainer, (bytearray(), set()))
        target = protocol.cut(memoryview(data), piece) if piece in missing else memoryview(b"")
        if piece not in missing or len(target) != payload.nbytes:
            raise BugError(
                f"piece {piece} of the blob of trainer {trainer} has {payload.nbytes} bytes, not {len(target)}"
            )
        target[:] = payload
        missing.discard(piece)
        if not missing:
            del self._arriving[trainer]
            if data:
                self.whole[trainer] = data

    def list_arrays(self) -> list[tuple[str, str, memoryview]]:
        """Return name, dtype and bytes of each blob, as arrays of the state; later blobs do not change these bytes."""
        return [(f"{PREFIX}{trainer}", "|u1", memoryview(data)) for trainer, data in sorted(self.whole.items())]


def restore(sizes: object, elements: int) -> dict[str, bytearray]:
    """Return an array of zeros for each blob of a checkpoint.

    Args: sizes: the bytes of each blob, by name.
    Raises: BugError: the sizes are invalid.
    """
    if sizes is None:
        return {}
    most = _most_bytes(elements)
    if not isinstance(sizes, Mapping) or not all(
        isinstance(size, int) and 0 <= size <= most and name.startswith(PREFIX) and name[len(PREFIX) :].isdecimal()
        for name, size in sizes.items()
    ):
        raise BugError(f"the state has invalid checkpoint blobs: {str(sizes)[:200]}")
    return {name: bytearray(size) for name, size in sizes.items()}


def describe(arrays: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the blobs among the arrays of a state."""
    return {name: array.nbytes for name, array in arrays.items() if name.startswith(PREFIX)}


def _most_bytes(elements: int) -> int:
    """Return the maximum length of a blob in bytes, for a model of `elements` elements."""
    return MAX_BYTES_PER_ELEMENT * elements + protocol.PIECE_BYTES

"""The elements of the flat vector that one service stores. Their pieces are sent and received without copies if
possible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pserver.optim.settings import Array
from pserver.store.partition import StridedRun, cut_runs
from pserver.wire import protocol

# maximum number of arrays whose views are stored; a trainer uses few arrays, and uses the same arrays in every batch
MAX_ARRAYS = 8
MAX_PARTS = 48  # maximum number of separate memory areas of a piece that is sent or received without a copy
# minimum average number of elements of a memory area; copying shorter areas is faster than listing them
MIN_PART_ELEMENTS = 4096


class VectorLayout:
    """The elements of one service, in the order of transfer.

    Attributes: size: number of elements. pieces: number of messages for these elements.
    """

    def __init__(self, runs: Sequence[StridedRun]) -> None:
        self.size = sum(run.length * run.count for run in runs)
        self.pieces = protocol.count_pieces(4 * self.size)
        self._runs = runs
        self._buffer: Array | None = None
        self._lowest: list[int] = []
        # views of recently used arrays; the key is id() of the array
        self._views: dict[int, tuple[Array, list[list[tuple[Array, StridedRun]]]]] = {}
        # the memory areas of each piece of recently used arrays; the key is id() of the array
        self._parts: dict[int, tuple[Array, list[list[memoryview] | None]]] = {}

    def parts_of(self, flat: Array, piece: int) -> list[memoryview] | None:
        """Return the vector's memory areas that form a piece of this service's elements; None if there are too many
        areas.

        Shapes: each item of the list contains bytes, and the concatenation of the items is the piece.
        """
        known = self._parts.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._parts) >= MAX_ARRAYS:
                self._parts.clear()
            known = self._parts[id(flat)] = (flat, [_rows_of(views) for views in self._pieces_of(flat)])
        return known[1][piece]

    def gather(self, flat: Array, piece: int) -> list[memoryview]:
        """Return a piece of this service's elements as bytes: the vector's own memory, or a copy.

        Elements in too many memory areas are copied into a buffer. The same piece must not be gathered again before the
        service has answered.
        """
        parts = self.parts_of(flat, piece)
        if parts is not None:
            return parts
        if self._buffer is None:
            self._buffer = np.empty(self.size, np.float32)
        part = protocol.cut(self._buffer.view("B").data, piece)
        self.copy(flat, piece, part)
        return [part]

    def copy(self, flat: Array, piece: int, target: memoryview) -> None:
        """Copy a piece of this service's elements into other memory."""
        array = np.frombuffer(target, np.float32)
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(array[run.local : run.local + run.length * run.count].reshape(view.shape), view)

    def scatter(self, payload: memoryview, flat: Array, piece: int) -> None:
        """Copy a payload to a piece of this service's elements in the flat vector.

        Raises: ValueError: the payload has the wrong length.
        """
        length = protocol.piece_elements()
        expected = 4 * min(length, self.size - piece * length)
        if payload.nbytes != expected:
            raise ValueError(f"piece {piece} has {payload.nbytes} bytes instead of {expected}")
        part = np.frombuffer(payload, np.float32)
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(view, part[run.local : run.local + run.length * run.count].reshape(view.shape))

    def lowest(self, piece: int) -> int:
        """Return the lowest position that an element of a piece has in the flat vector."""
        if not self._lowest:
            length = protocol.piece_elements()
            cuts = [cut_runs(self._runs, start, start + length) for start in range(0, max(self.size, 1), length)]
            self._lowest = [min((run.flat for run in cut), default=0) for cut in cuts]
        return self._lowest[piece]

    def _pieces_of(self, flat: Array) -> list[list[tuple[Array, StridedRun]]]:
        """Return the strided views of each piece; the views of recently used arrays are stored."""
        known = self._views.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._views) >= MAX_ARRAYS:
                self._views.clear()
            length = protocol.piece_elements()
            pieces = [
                [(_view(flat, run), run) for run in cut_runs(self._runs, start, min(start + length, self.size))]
                for start in range(0, max(self.size, 1), length)
            ]
            known = self._views[id(flat)] = (flat, pieces)
        return known[1]


def _rows_of(views: Sequence[tuple[Array, StridedRun]]) -> list[memoryview] | None:
    count = sum(run.count for _, run in views)
    elements = sum(run.count * run.length for _, run in views)
    if count > MAX_PARTS or (count > 1 and elements < count * MIN_PART_ELEMENTS):
        return None
    return [row.view(np.uint8).data for view, _ in views for row in view]


def _view(flat: Array, run: StridedRun) -> Array:
    return np.lib.stride_tricks.as_strided(flat[run.flat :], (run.count, run.length), (run.stride * 4, 4))

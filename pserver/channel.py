"""One service as its client sees it: the data connection, and which elements of the flat vector lie there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from pserver import protocol
from pserver.blocks import Run, cut_runs
from pserver.links import Link
from pserver.protocol import Buffer, Flag, Message
from pserver.rules import Array
from pserver.shared_memory import SharedMemory

MOST_ARRAYS = 8  # whose views are kept; a trainer has a few, which it uses in every batch
MOST_PARTS = 48  # places that a piece is read into or sent from without a copy
LEAST_PART = 4096  # elements of such a place, on average; shorter ones are copied sooner than listed


class Channel:
    """The data connection to one service, and what of the flat vector lies there.

    `memory` is what it shares with the service, where both are on one host and the service has accepted.
    """

    def __init__(self, link: Link, runs: Sequence[Run]) -> None:
        self.link = link
        self.name = f"pserver {link.host}:{link.port}"
        self.runs = runs
        self.size = sum(run.length * run.count for run in runs)
        self.pieces = protocol.count_pieces(4 * self.size)
        self.nonce = secrets.token_hex(16)
        self.server_nonce = ""
        self.key = b""
        self.memory: SharedMemory | None = None
        self.last = "said nothing yet"
        self.waits_for = ""
        self.breaks = 0  # of the link, that were noticed
        self.unsent: set[int] = set()  # pieces of the request in hand
        self.pending: set[int] = set()  # pieces of its answer that have not come
        self.placed: set[int] = set()  # of these, those that are read to where they belong
        self._buffer: Array | None = None
        self._lowest: list[int] = []
        self._views: dict[int, tuple[Array, list[list[tuple[Array, Run]]]]] = {}
        self._parts: dict[int, tuple[Array, list[list[memoryview] | None]]] = {}

    def close(self) -> None:
        """Close the connection, and give back the shared memory."""
        self.link.close()
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message; its payload is not copied."""
        self.link.send(frames)

    def payload_of(self, answer: Message) -> memoryview:
        """Return the array that a message brings, empty if it brings none."""
        if answer.flags & Flag.LOCAL and self.memory is not None:
            return protocol.cut(self.memory.inbox, answer.piece)
        return memoryview(answer.payload[0]) if answer.payload else memoryview(b"")

    def parts_of(self, flat: Array, piece: int) -> list[memoryview] | None:
        """Return the vector's own memory that a piece of this service's elements lies in; None if in too many places.

        Shapes: each part of the list: bytes; together they are the piece.
        """
        known = self._parts.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._parts) >= MOST_ARRAYS:
                self._parts.clear()
            known = self._parts[id(flat)] = (flat, [_rows_of(views) for views in self._pieces_of(flat)])
        return known[1][piece]

    def gather(self, flat: Array, piece: int) -> memoryview | list[memoryview]:
        """Return a piece of this service's elements as bytes: in shared memory, or the vector's own memory.

        Where the elements lie in too many places they are copied into a buffer, which must not be asked for again
        before the service has answered.
        """
        if self.memory is not None:
            target = protocol.cut(self.memory.outbox, piece)
            self._copy(flat, piece, np.frombuffer(target, np.float32))
            return target
        parts = self.parts_of(flat, piece)
        if parts is not None:
            return parts
        if self._buffer is None:
            self._buffer = np.empty(self.size, np.float32)
        part = protocol.cut(self._buffer.view("B").data, piece)
        self._copy(flat, piece, np.frombuffer(part, np.float32))
        return part

    def lowest(self, piece: int) -> int:
        """Return the first element of the flat vector that a piece holds any of."""
        if not self._lowest:
            length = protocol.piece_elements()
            cuts = [cut_runs(self.runs, start, start + length) for start in range(0, max(self.size, 1), length)]
            self._lowest = [min((run.flat for run in cut), default=0) for cut in cuts]
        return self._lowest[piece]

    def scatter(self, payload: memoryview, flat: Array, piece: int) -> None:
        """Write a piece of this service's elements into the flat vector."""
        part = np.frombuffer(payload, np.float32)
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(view, part[run.local : run.local + run.length * run.count].reshape(view.shape))

    def _copy(self, flat: Array, piece: int, target: Array) -> None:
        for view, run in self._pieces_of(flat)[piece]:
            np.copyto(target[run.local : run.local + run.length * run.count].reshape(view.shape), view)

    def _pieces_of(self, flat: Array) -> list[list[tuple[Array, Run]]]:
        """Return the strided views of each piece; those of the last few arrays are kept."""
        known = self._views.get(id(flat))
        if known is None or known[0] is not flat:
            if len(self._views) >= MOST_ARRAYS:
                self._views.clear()
            length = protocol.piece_elements()
            pieces = [
                [(_view(flat, run), run) for run in cut_runs(self.runs, start, min(start + length, self.size))]
                for start in range(0, max(self.size, 1), length)
            ]
            known = self._views[id(flat)] = (flat, pieces)
        return known[1]


def _rows_of(views: Sequence[tuple[Array, Run]]) -> list[memoryview] | None:
    count = sum(run.count for _, run in views)
    if count > MOST_PARTS or (count > 1 and sum(run.count * run.length for _, run in views) < count * LEAST_PART):
        return None
    return [row.view(np.uint8).data for view, _ in views for row in view]


def _view(flat: Array, run: Run) -> Array:
    return np.lib.stride_tricks.as_strided(flat[run.flat :], (run.count, run.length), (run.stride * 4, 4))

"""One service as its client sees it: the data connection, and which elements of the flat vector lie there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import zmq

from pserver import protocol
from pserver.blocks import Run, cut_runs
from pserver.protocol import Buffer, Flag, Message
from pserver.rules import Array
from pserver.shared_memory import SharedMemory


class Channel:
    """The data connection to one service, and what of the flat vector lies there.

    `memory` is what it shares with the service, where both are on one host and the service has accepted.
    """

    def __init__(self, socket: zmq.Socket[bytes], host: str, port: int, runs: Sequence[Run]) -> None:
        self.socket = socket
        self.name = f"pserver {host}:{port}"
        self.runs = runs
        self.size = sum(run.length * run.count for run in runs)
        self.pieces = protocol.count_pieces(4 * self.size)
        self.nonce = secrets.token_hex(16)
        self.server_nonce = ""
        self.key = b""
        self.memory: SharedMemory | None = None
        self.last = "said nothing yet"
        self.waits_for = ""
        self.unsent: set[int] = set()  # pieces of the request in hand
        self.pending: set[int] = set()  # pieces of its answer that have not come
        self._is_strided = len(runs) > 1 or any(run.count > 1 for run in runs)
        self._buffer: Array | None = None
        self._lowest: list[int] = []
        self._views: dict[int, tuple[Array, list[list[tuple[Array, Run]]]]] = {}

    def close(self) -> None:
        """Give back what is not the socket's."""
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send a message; its payload is not copied."""
        self.socket.send_multipart(frames, copy=False)

    def receive(self) -> list[Buffer] | None:
        """Return the frames of the next message, or None if there is none yet; the payload is not copied."""
        try:
            frames: list[Buffer] = [self.socket.recv(zmq.NOBLOCK)]
        except zmq.Again:
            return None
        while self.socket.rcvmore:
            frames.append(self.socket.recv() if len(frames) < 2 else self.socket.recv(copy=False).buffer)
        return frames

    def payload_of(self, answer: Message) -> memoryview:
        """Return the array that a message brings, empty if it brings none."""
        if answer.flags & Flag.LOCAL and self.memory is not None:
            return protocol.cut(self.memory.inbox, answer.piece)
        return memoryview(answer.payload[0]) if answer.payload else memoryview(b"")

    def gather(self, flat: Array, piece: int) -> memoryview:
        """Return a piece of this service's elements as bytes: in shared memory, or the vector's own memory.

        Where the elements do not lie together they are copied into a buffer, which must not be asked for again before
        the service has answered.
        """
        if self.memory is not None:
            target = protocol.cut(self.memory.outbox, piece)
            self._copy(flat, piece, np.frombuffer(target, np.float32))
            return target
        if not self._is_strided:
            start = self.runs[0].flat if self.runs else 0
            return protocol.cut(flat[start : start + self.size].view("B").data, piece)
        if self._buffer is None:
            self._buffer = np.empty(self.size, np.float32)
        part = protocol.cut(self._buffer.view("B").data, piece)
        self._copy(flat, piece, np.frombuffer(part, np.float32))
        return part

    def lowest(self, piece: int) -> int:
        """Return the first element of the flat vector that a piece holds any of."""
        if not self._lowest:
            length = protocol.PIECE_BYTES // 4
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
            if len(self._views) >= 8:
                self._views.clear()
            length = protocol.PIECE_BYTES // 4
            pieces = [
                [(_view(flat, run), run) for run in cut_runs(self.runs, start, min(start + length, self.size))]
                for start in range(0, max(self.size, 1), length)
            ]
            known = self._views[id(flat)] = (flat, pieces)
        return known[1]


def _view(flat: Array, run: Run) -> Array:
    return np.lib.stride_tricks.as_strided(flat[run.flat :], (run.count, run.length), (run.stride * 4, 4))

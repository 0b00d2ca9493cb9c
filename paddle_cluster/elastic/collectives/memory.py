"""Collectives among processes of the same host: every rank has memory that all other ranks read.

All data are sent in exchanges. Before exchange number e, a rank writes into its slot e % 2. The rank then sends a
message to all other ranks, and waits for their messages. The rank then reads the slots e % 2 of the other ranks, until
it begins exchange e + 1. It may write into its own slot e % 2 again when all messages of exchange e + 1 have arrived,
and writes there before exchange e + 2.

For a small array every rank computes the whole reduction, in a single exchange. A larger array is cut into pieces, and
every rank reduces a part of each piece for all ranks. An exchange carries a piece of the arrays, and the reduced parts
of the previous piece.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from paddle_cluster.elastic.collectives import arithmetic
from paddle_cluster.elastic.collectives.arithmetic import Flat
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from paddle_cluster.elastic.collectives.fusion import Batch
from paddle_cluster.elastic.collectives.mesh import AnyMesh
from paddle_cluster.elastic.collectives.requests import CollectiveKind
from pserver.wire.shared_memory import SharedMemory

PIECE_BYTES = 2 << 20  # bytes of a piece; the slots of a few ranks then fit into the cache (bench/allreduce.py)
DIRECT_BYTES = 1 << 20  # maximum bytes of all ranks together for which each rank reduces all data (bench/allreduce.py)
SLOT_BYTES = 2 * PIECE_BYTES  # bytes of a slot: a piece of the arrays, and the reduced parts of the previous piece


class MemoryPath:
    """The path of arrays over shared memory.

    Args: memories: shared memory of each rank, including this rank; its `outbox` is slot 0, and its `inbox` is slot 1.
        timeout: maximum seconds of a step after all ranks have begun the collective.
    """

    def __init__(self, mesh: AnyMesh, memories: Mapping[int, SharedMemory], timeout: float) -> None:
        self._mesh, self._timeout = mesh, timeout
        self._others = list(mesh.peers)
        self._sequence = 0
        self._slots = [
            [np.frombuffer(slot, np.uint8) for slot in (memories[rank].outbox, memories[rank].inbox)]
            for rank in range(mesh.size)
        ]

    # ----- Exchanges -----

    def announce(self, note: bytes, batch: Batch | None) -> int:
        """Write the first piece of the first batch, and announce the waiting requests; return the number of the
        exchange.
        """
        if batch is not None:
            self._place(batch)
        return self._tell(FrameKind.ANNOUNCE, note)

    def take_announcements(self) -> list[Frame]:
        """Return the received announcements of all other ranks."""
        return [self._mesh.take(number, FrameKind.ANNOUNCE, self._sequence - 1) for number in self._others]

    def _tell(self, kind: FrameKind, note: bytes = b"") -> int:
        sequence = self._sequence
        self._sequence += 1
        for number in self._others:
            self._mesh.send(number, kind, sequence, note)
        return sequence

    def _step(self) -> None:
        sequence = self._tell(FrameKind.STEP)
        self._mesh.collect(FrameKind.STEP, sequence, self._others, time.monotonic() + self._timeout)

    def _own(self, begin: int, batch: Batch, count: int) -> Flat:
        """Return a part of the slot that this rank writes now. `begin`: offset in the slot in bytes."""
        slot = self._slots[self._mesh.rank][self._sequence % 2]
        return slot[begin : begin + count * batch.dtype.itemsize].view(batch.dtype)

    def _seen(self, rank: int, begin: int, batch: Batch, count: int) -> Flat:
        """Return a part of the slot of a rank that may be read now. `begin`: offset in the slot in bytes."""
        slot = self._slots[rank][(self._sequence - 1) % 2]
        return slot[begin : begin + count * batch.dtype.itemsize].view(batch.dtype)

    # ----- Collectives -----

    def run(self, batch: Batch, frames: list[Frame] | None, root: int | None = None) -> None:
        """Run a batch.

        Args: frames: the other ranks' announcements if `announce` has written the first piece of this batch, else None.
            root: the only rank that needs the result of an all-reduce; None: all ranks.
        """
        is_placed, is_wanted = frames is not None, root in (None, self._mesh.rank)
        if batch.kind == CollectiveKind.ALLREDUCE:
            if self._is_direct(batch):
                self._begin(batch, is_placed)
                sources = [self._seen(rank, 0, batch, batch.count) for rank in range(self._mesh.size)]
                if is_wanted:
                    batch.write_combined(sources, self._mesh.size)
            else:
                self._reduce_by_parts(batch, is_placed, is_wanted)
        elif batch.kind == CollectiveKind.ALLGATHER:
            self._gather(batch, is_placed)
        elif batch.kind == CollectiveKind.BROADCAST:
            self._broadcast(batch, is_placed)

    def _is_direct(self, batch: Batch) -> bool:
        return batch.nbytes * self._mesh.size <= DIRECT_BYTES

    def _place(self, batch: Batch) -> None:
        """Write the first piece of a batch into this rank's slot."""
        if batch.kind == CollectiveKind.BROADCAST and batch.argument != self._mesh.rank:
            return
        if batch.kind != CollectiveKind.BARRIER:
            self._write_piece(batch, 0)

    def _begin(self, batch: Batch, is_placed: bool) -> None:
        if not is_placed:
            self._place(batch)
            self._step()

    def _write_piece(self, batch: Batch, number: int) -> None:
        piece = PIECE_BYTES // batch.dtype.itemsize
        begin, end = number * piece, min((number + 1) * piece, batch.count)
        if begin < end:
            batch.read(begin, end, self._own(0, batch, end - begin))

    def _reduce_by_parts(self, batch: Batch, is_placed: bool, is_wanted: bool) -> None:
        size, rank = self._mesh.size, self._mesh.rank
        piece = PIECE_BYTES // batch.dtype.itemsize
        pieces = -(-batch.count // piece)
        self._begin(batch, is_placed)
        for number in range(pieces):
            # reduce this rank's part of the piece into the slot of the next exchange
            begin, end = number * piece, min((number + 1) * piece, batch.count)
            low, high = _part(end - begin, rank, size)
            sources = [self._seen(one, 0, batch, high)[low:] for one in range(size)]
            arithmetic.combine(self._own(PIECE_BYTES, batch, high - low), sources, batch.argument, size)
            self._write_piece(batch, number + 1)
            self._step()
            for one in range(size) if is_wanted else ():
                low, high = _part(end - begin, one, size)
                batch.write(begin + low, begin + high, self._seen(one, PIECE_BYTES, batch, high - low))

    def _gather(self, batch: Batch, is_placed: bool) -> None:
        piece = PIECE_BYTES // batch.dtype.itemsize
        target = batch.entries[0].target
        for number in range(-(-max(batch.counts) // piece)):
            if number:
                self._write_piece(batch, number)
                self._step()
            else:
                self._begin(batch, is_placed)
            start = 0
            for rank, count in enumerate(batch.counts):
                begin, end = number * piece, min((number + 1) * piece, count)
                if begin < end:
                    target[start + begin : start + end] = self._seen(rank, 0, batch, end - begin)
                start += count

    def _broadcast(self, batch: Batch, is_placed: bool) -> None:
        piece = PIECE_BYTES // batch.dtype.itemsize
        root = batch.argument
        self._begin(batch, is_placed)
        for number in range(-(-batch.count // piece)):
            if number:
                if root == self._mesh.rank:
                    self._write_piece(batch, number)
                self._step()
            begin, end = number * piece, min((number + 1) * piece, batch.count)
            batch.write(begin, end, self._seen(root, 0, batch, end - begin))


def _part(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the start and end of the part of `count` elements that a rank reduces; a part is a multiple of 16
    elements.
    """
    step = -(-count // size)
    step = -(-step // 16) * 16
    return min(rank * step, count), min((rank + 1) * step, count)

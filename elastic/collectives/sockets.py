"""Collectives over connections: small arrays use the announcement or a tree, and large arrays use a ring."""

from __future__ import annotations

import numpy as np

from elastic.collectives import ring, tree
from elastic.collectives.arithmetic import Flat
from elastic.collectives.frames import Frame, FrameKind
from elastic.collectives.fusion import Batch
from elastic.collectives.mesh import Mesh
from elastic.collectives.requests import CollectiveKind

TREE_BYTES = 1 << 16  # bytes; up to this size the number of messages determines the time, and not their length
INLINE_BYTES = 1 << 15  # bytes; an array up to this size is sent with the announcement
INLINE_SIZE = 8  # ranks; larger groups send no arrays with the announcement


class SocketPath:
    """The path of arrays over connections. `timeout`: seconds between two pieces after all ranks have begun."""

    def __init__(self, mesh: Mesh, timeout: float) -> None:
        self._mesh, self._timeout = mesh, timeout
        self._others = list(mesh.peers)
        self._sequence = 0

    def announce(self, note: bytes, batch: Batch) -> int:
        """Announce the waiting requests and a small first batch to the other ranks; return the sequence."""
        payload: list[memoryview] = []
        if self._is_inline(batch):
            whole: Flat = np.empty(batch.count, batch.dtype)
            batch.read(0, batch.count, whole)
            payload.append(whole.view(np.uint8).data)
        sequence = self._next()
        for number in self._others:
            self._mesh.send(number, FrameKind.ANNOUNCE, sequence, note, payload)
        return sequence

    def take_announcements(self) -> list[Frame]:
        """Return the received announcements of all other ranks."""
        return [self._mesh.take(number, FrameKind.ANNOUNCE, self._sequence - 1) for number in self._others]

    def _is_inline(self, batch: Batch) -> bool:
        is_small = batch.nbytes <= INLINE_BYTES and self._mesh.size <= INLINE_SIZE
        return batch.kind == CollectiveKind.ALLREDUCE and is_small

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """Run a batch. `frames`: the announcements, if the batch was first in all announcements; else None."""
        mesh, timeout = self._mesh, self._timeout
        if batch.kind == CollectiveKind.ALLREDUCE:
            if frames is not None and self._is_inline(batch):
                self._reduce_inline(batch, frames)
                return
            work = batch.whole_target()
            algorithm = tree if work.nbytes <= TREE_BYTES else ring
            algorithm.reduce(mesh, self._next(), work, batch.argument, timeout)
            self._give_back(batch, work)
        elif batch.kind == CollectiveKind.ALLGATHER:
            target = batch.entries[0].target
            start = sum(batch.counts[: mesh.rank])
            target[start : start + batch.count] = batch.entries[0].source
            ring.gather(mesh, self._next(), target, batch.counts, timeout)
        elif batch.kind == CollectiveKind.BROADCAST:
            whole: Flat = np.empty(batch.count, batch.dtype)
            if batch.argument == mesh.rank:
                batch.read(0, batch.count, whole)
            tree.broadcast(mesh, self._next(), whole, batch.argument, timeout)
            batch.write(0, batch.count, whole)

    def _reduce_inline(self, batch: Batch, frames: list[Frame]) -> None:
        own: Flat = np.empty(batch.count, batch.dtype)
        batch.read(0, batch.count, own)
        sources = {self._mesh.rank: own}
        for number, frame in zip(self._others, frames, strict=True):
            if frame.payload.nbytes != own.nbytes:
                self._mesh.fail(f"rank {number} sent {frame.payload.nbytes} bytes in place of {own.nbytes}")
            sources[number] = np.frombuffer(frame.payload, batch.dtype)
        batch.write_combined([sources[rank] for rank in range(self._mesh.size)], self._mesh.size)

    @staticmethod
    def _give_back(batch: Batch, work: Flat) -> None:
        if len(batch.entries) > 1 or work is not batch.entries[0].target:
            batch.write(0, batch.count, work)

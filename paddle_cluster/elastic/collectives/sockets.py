"""Collectives over connections: small arrays are sent with the announcement or along a tree, large arrays around a
ring.

A host with several ranks takes part in a ring as a single rank. First the ranks of the host reduce their arrays in
shared memory. Then the first rank of the host takes part in the ring, and passes the result on in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddle_cluster.elastic.collectives.algorithms import ring, tree
from paddle_cluster.elastic.collectives.arithmetic import Flat, divide
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from paddle_cluster.elastic.collectives.fusion import Batch, FusedArray
from paddle_cluster.elastic.collectives.memory import MemoryPath
from paddle_cluster.elastic.collectives.mesh import Mesh, SubMesh
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction, Request
from pserver.wire.shared_memory import SharedMemory

TREE_BYTES = 1 << 16  # maximum bytes of an array that is sent along a tree, which needs fewer messages than a ring
INLINE_BYTES = 1 << 15  # maximum bytes of all arrays that are sent with an announcement
INLINE_SIZE = 8  # maximum number of ranks in a group that sends arrays with the announcement
SEGMENT_BYTES = 16 << 20  # maximum bytes of an array in one pass of the ring; the other ranks of a host wait for it


class SocketPath:
    """The path of arrays over connections. `timeout`: maximum seconds between two pieces."""

    def __init__(self, mesh: Mesh, timeout: float) -> None:
        self._mesh, self._timeout = mesh, timeout
        self._others = list(mesh.peers)
        self._sequence = 0

    def announce(self, note: bytes, batch: Batch | None) -> int:
        """Announce the waiting requests; if the arrays of the first batch are small, send them with the announcement.

        Returns: the number of the exchange.
        """
        payload: list[memoryview] = []
        if batch is not None and self._is_inline(batch):
            whole: Flat = np.empty(batch.count, batch.dtype)
            batch.read(0, batch.count, whole)
            payload.append(whole.view(np.uint8).data)
        sequence = self.next()
        for number in self._others:
            self._mesh.send(number, FrameKind.ANNOUNCE, sequence, note, payload)
        return sequence

    def take_announcements(self) -> list[Frame]:
        """Return the received announcements of all other ranks."""
        return [self._mesh.take(number, FrameKind.ANNOUNCE, self._sequence - 1) for number in self._others]

    def _is_inline(self, batch: Batch) -> bool:
        is_small = batch.nbytes <= INLINE_BYTES and self._mesh.size <= INLINE_SIZE
        return batch.kind == CollectiveKind.ALLREDUCE and is_small

    def next(self) -> int:
        """Return the number of the next exchange of the group."""
        self._sequence += 1
        return self._sequence - 1

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """Run a batch. `frames`: the others' announcements if all are equal and begin with this batch, else None."""
        mesh, timeout = self._mesh, self._timeout
        if batch.kind == CollectiveKind.ALLREDUCE:
            if frames is not None and self._is_inline(batch):
                self._reduce_inline(batch, frames)
                return
            work = batch.whole_target()
            algorithm = tree if work.nbytes <= TREE_BYTES else ring
            algorithm.reduce(mesh, self.next(), work, batch.argument, timeout)
            _give_back(batch, work)
        elif batch.kind == CollectiveKind.ALLGATHER:
            target = batch.entries[0].target
            start = sum(batch.counts[: mesh.rank])
            target[start : start + batch.count] = batch.entries[0].source
            ring.gather(mesh, self.next(), target, batch.counts, timeout)
        elif batch.kind == CollectiveKind.BROADCAST:
            whole: Flat = np.empty(batch.count, batch.dtype)
            if batch.argument == mesh.rank:
                batch.read(0, batch.count, whole)
            tree.broadcast(mesh, self.next(), whole, batch.argument, timeout)
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


class HostsPath(SocketPath):
    """The path of arrays between several hosts, if some of the hosts have several ranks.

    Args: hosts: the ranks of each host; every rank has the same list.  memories: shared memory of each rank of this
        host.
    """

    def __init__(
        self, mesh: Mesh, hosts: Sequence[Sequence[int]], memories: Mapping[int, SharedMemory], timeout: float
    ) -> None:
        super().__init__(mesh, timeout)
        own = next(host for host in hosts if mesh.rank in host)
        self._near: MemoryPath | None = None
        if len(own) > 1:
            self._near = MemoryPath(
                SubMesh(mesh, own), {place: memories[rank] for place, rank in enumerate(own)}, timeout
            )
        self._far = SubMesh(mesh, [host[0] for host in hosts]) if mesh.rank == own[0] else None

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """Run a batch; see `SocketPath.run`."""
        if batch.kind != CollectiveKind.ALLREDUCE or batch.nbytes <= TREE_BYTES:
            super().run(batch, frames)
            return
        work = batch.whole_target()
        step = SEGMENT_BYTES // work.itemsize
        for begin in range(0, len(work), step):
            self._reduce(work[begin : begin + step], batch.argument)
        _give_back(batch, work)

    def _reduce(self, part: Flat, reduction: int) -> None:
        is_average = reduction == Reduction.AVERAGE
        partial = Reduction.SUM if is_average else Reduction(reduction)
        sequence = self.next()
        if self._near is not None:
            self._near.run(_make_batch(CollectiveKind.ALLREDUCE, part, partial), None, root=0)
        if self._far is not None:
            ring.reduce(self._far, sequence, part, partial, self._timeout)
            if is_average:
                divide(part, self._mesh.size)
        if self._near is not None:
            self._near.run(_make_batch(CollectiveKind.BROADCAST, part, 0), None)


def _make_batch(kind: CollectiveKind, part: Flat, argument: int) -> Batch:
    request = Request(kind, "", part.dtype, part.shape, argument)
    return Batch([FusedArray(request, part, part)], [request.elements])


def _give_back(batch: Batch, work: Flat) -> None:
    if len(batch.entries) > 1 or work is not batch.entries[0].target:
        batch.write(0, batch.count, work)

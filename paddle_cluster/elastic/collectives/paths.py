"""The ways in which arrays are sent between ranks: in shared memory, over connections, or both.

In shared memory every rank of a host has two slots that all other ranks of the host read.
All data are sent in exchanges. Before exchange number e, a rank writes into its slot e % 2. The rank then sends a
message to all other ranks, and waits for their messages. The rank then reads the slots e % 2 of the other ranks, until
it begins exchange e + 1. It may write into its own slot e % 2 again when all messages of exchange e + 1 have arrived,
and writes there before exchange e + 2.

For a small array every rank computes the whole reduction, in a single exchange. A larger array is cut into pieces, and
every rank reduces a part of each piece for all ranks. An exchange carries a piece of the arrays, and the reduced parts
of the previous piece. In a reduce-scatter every rank reduces its part of the result alone, and in an all-to-all every
rank reads what the others have for it; there a piece carries something for every rank.

Over connections small arrays are sent with the announcement or along a tree, and large arrays around a ring; between
many ranks, arrays of a medium size are halved. A host
with several ranks takes part in a ring as a single rank. First the ranks of the host reduce their arrays in shared
memory. Then the first rank of the host takes part in the ring, and passes the result on in shared memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from paddle_cluster.elastic.collectives.algorithms import (
    RingArray,
    broadcast_by_tree,
    exchange_directly,
    gather_by_ring,
    largest_power,
    reduce_by_halving,
    reduce_by_ring,
    reduce_by_tree,
    scatter_by_ring,
)
from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.frames import Frame, FrameKind
from paddle_cluster.elastic.collectives.fusion import Batch, FusedArray, Workspace, class_of
from paddle_cluster.elastic.collectives.mesh import AnyMesh, Mesh, SubMesh
from paddle_cluster.elastic.collectives.reducing import Arithmetic
from paddle_cluster.elastic.collectives.requests import REDUCING_KINDS, CollectiveKind, Reduction, Request
from pserver.wire.shared_memory import SharedMemory

PIECE_BYTES = 2 << 20  # bytes of a piece; the slots of a few ranks then fit into the cache (bench/allreduce.py)
DIRECT_BYTES = 1 << 20  # maximum bytes of all ranks together for which each rank reduces all data (bench/allreduce.py)
SLOT_BYTES = 2 * PIECE_BYTES  # bytes of a slot: a piece of the arrays, and the reduced parts of the previous piece
TREE_BYTES = 1 << 16  # maximum bytes of an array that is sent along a tree, which needs fewer messages than a ring
# bytes for each rank up to which an array is halved between ranks, which needs fewer messages than a ring
# (bench/allreduce.py --many), and the least number of ranks
HALVED_BYTES = 1 << 16
HALVED_SIZE = 8
_SMALL, _MEDIUM, _LARGE = range(3)  # classes of arrays over connections
INLINE_BYTES = 1 << 15  # maximum bytes of all arrays that are sent with an announcement
INLINE_SIZE = 8  # maximum number of ranks in a group that sends arrays with the announcement
SEGMENT_BYTES = 16 << 20  # maximum bytes of an array in one pass of the ring; the other ranks of a host wait for it


class ArrayPath:
    """The path of a group with a single rank, which sends nothing, and the base of the other paths.

    Args: timeout: maximum seconds of a step, or between two pieces, after all ranks have begun the collective.
    """

    limits: Sequence[int] = ()  # bytes; all-reduces up to a limit run in batches of their own

    def __init__(self, mesh: AnyMesh, timeout: float = 0.0) -> None:
        self._mesh, self._timeout = mesh, timeout
        self._others = list(mesh.peers)
        self._sequence = 0

    def announce(self, note: bytes, batch: Batch | None) -> int:
        """Announce the new requests to the other ranks; return the number of the exchange.

        Args: batch: has the first of the requests; None: there are none.
        """
        return self._tell(FrameKind.ANNOUNCE, note)

    def take_announcements(self) -> list[Frame]:
        """Return the received announcements of all other ranks."""
        return [self._mesh.take(number, FrameKind.ANNOUNCE, self._sequence - 1) for number in self._others]

    def prepare(self, batch: Batch) -> AbstractContextManager[Batch]:
        """Give the batch that `run` takes."""
        return batch.in_wire_type()

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """Run a batch. `frames`: the others' announcements if all are equal and begin with this batch, else None."""
        if batch.kind == CollectiveKind.BARRIER:
            return
        for entry in batch.entries:
            if batch.kind in REDUCING_KINDS:
                batch.arithmetic.combine(entry.target, [entry.source], 1)
            elif entry.source is not entry.target:
                entry.target[...] = entry.source[: len(entry.target)]  # the rest of an all-to-all is not sent

    def _next(self) -> int:
        """Return the number of the next exchange of the group."""
        self._sequence += 1
        return self._sequence - 1

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._mesh.size

    def _tell(self, kind: FrameKind, note: bytes = b"", payload: Sequence[memoryview] = ()) -> int:
        sequence = self._next()
        for number in self._others:
            self._mesh.send(number, kind, sequence, note, payload)
        return sequence


class MemoryPath(ArrayPath):
    """The path of arrays over shared memory.

    Args: memories: shared memory of each rank, including this rank; its `outbox` is slot 0, and its `inbox` is slot 1.
        timeout: maximum seconds of a step after all ranks have begun the collective.
    """

    def __init__(self, mesh: AnyMesh, memories: Mapping[int, SharedMemory], timeout: float) -> None:
        super().__init__(mesh, timeout)
        self._slots = [
            [np.frombuffer(slot, np.uint8) for slot in (memories[rank].outbox, memories[rank].inbox)]
            for rank in range(mesh.size)
        ]

    # ----- Exchanges -----

    def announce(self, note: bytes, batch: Batch | None) -> int:
        """Write the first piece of the first batch, too."""
        if batch is not None:
            self._place(batch)
        return self._tell(FrameKind.ANNOUNCE, note)

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

    def prepare(self, batch: Batch) -> AbstractContextManager[Batch]:
        """Give the batch itself, whose values are converted on their way into the slots and out of them."""
        return nullcontext(batch)

    def run(self, batch: Batch, frames: list[Frame] | None, root: int | None = None) -> None:
        """Run a batch.

        Args: frames: the other ranks' announcements if `announce` has written the first piece of this batch, else None.
            root: the only rank that needs the result of an all-reduce; None: all ranks.
        """
        is_placed, is_wanted = frames is not None, root in (None, self._mesh.rank)
        if batch.kind == CollectiveKind.ALLREDUCE:
            if self._is_direct(batch):
                with batch.in_wire_type() as narrow:
                    self._begin(narrow, is_placed)
                    sources = [self._seen(rank, 0, narrow, narrow.count) for rank in range(self._mesh.size)]
                    if is_wanted:
                        narrow.write_combined(sources, self._mesh.size)
            else:
                self._reduce_by_parts(batch, is_placed, is_wanted)
        elif batch.kind == CollectiveKind.ALLGATHER:
            self._gather(batch, is_placed)
        elif batch.kind == CollectiveKind.BROADCAST:
            self._broadcast(batch, is_placed)
        elif batch.kind == CollectiveKind.REDUCESCATTER:
            self._reduce_scatter(batch, is_placed)
        elif batch.kind == CollectiveKind.ALLTOALL:
            self._exchange(batch, is_placed)

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
        if batch.kind in (CollectiveKind.REDUCESCATTER, CollectiveKind.ALLTOALL):
            self._write_parts(batch, number)
            return
        piece = PIECE_BYTES // batch.dtype.itemsize
        begin, end = number * piece, min((number + 1) * piece, batch.count)
        if begin >= end:
            return
        out = self._own(0, batch, end - begin)
        low, high = _part(end - begin, self._mesh.rank, self._mesh.size)
        is_read_in_place = batch.kind == CollectiveKind.ALLREDUCE and not self._is_direct(batch)
        if is_read_in_place and batch.view(begin + low, begin + high) is not None:
            batch.read(begin, begin + low, out[:low])
            batch.read(begin + high, end, out[high:])
        else:
            batch.read(begin, end, out)

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
            own = batch.view(begin + low, begin + high)  # see `_write_piece`
            if own is not None:
                sources[rank] = own
            batch.arithmetic.combine(self._own(PIECE_BYTES, batch, high - low), sources, size)
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

    # ----- Collectives whose arrays have a part for each rank -----

    def _room(self, batch: Batch) -> int:
        """Return the elements of a piece for each rank; they are at a fixed place of the slot."""
        return max(1, PIECE_BYTES // (batch.dtype.itemsize * self._mesh.size))

    def _write_parts(self, batch: Batch, number: int) -> None:
        room = self._room(batch)
        for rank, (begin, end) in enumerate(batch.parts_from(self._mesh.rank)):
            low, high = begin + number * room, min(begin + (number + 1) * room, end)
            if low < high and not (rank == self._mesh.rank and batch.kind == CollectiveKind.ALLTOALL):
                batch.read(low, high, self._own(rank * room * batch.dtype.itemsize, batch, high - low))

    def _seen_part(self, batch: Batch, rank: int, count: int) -> Flat:
        """Return what a rank has written for this rank."""
        return self._seen(rank, self._mesh.rank * self._room(batch) * batch.dtype.itemsize, batch, count)

    def _each_piece(self, batch: Batch, pieces: int, is_placed: bool) -> Iterator[int]:
        for number in range(pieces):
            if number:
                self._write_piece(batch, number)
                self._step()
            else:
                self._begin(batch, is_placed)
            yield number

    def _reduce_scatter(self, batch: Batch, is_placed: bool) -> None:
        room, target = self._room(batch), batch.entries[0].target
        longest = max(end - begin for begin, end in batch.parts_from(self._mesh.rank))
        for number in self._each_piece(batch, -(-longest // room), is_placed):
            out = target[number * room : (number + 1) * room]
            if len(out):
                sources = [self._seen_part(batch, rank, len(out)) for rank in range(self._mesh.size)]
                batch.arithmetic.combine(out, sources, self._mesh.size)

    def _exchange(self, batch: Batch, is_placed: bool) -> None:
        room, own = self._room(batch), self._mesh.rank
        entry, parts = batch.entries[0], batch.parts_into(own)
        matrix = [batch.parts_from(rank) for rank in range(self._mesh.size)]
        longest = max(
            end - begin for rank, row in enumerate(matrix) for other, (begin, end) in enumerate(row) if rank != other
        )
        entry.target[slice(*parts[own])] = entry.source[slice(*matrix[own][own])]
        for number in self._each_piece(batch, -(-longest // room), is_placed):
            for rank, (begin, end) in enumerate(parts):
                low, high = begin + number * room, min(begin + (number + 1) * room, end)
                if low < high and rank != own:
                    entry.target[low:high] = self._seen_part(batch, rank, high - low)


def _part(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the start and end of the part of `count` elements that a rank reduces; a part is a multiple of 16
    elements.
    """
    step = -(-count // size)
    step = -(-step // 16) * 16
    return min(rank * step, count), min((rank + 1) * step, count)


class SocketPath(ArrayPath):
    """The path of arrays over connections. `timeout`: maximum seconds between two pieces."""

    def __init__(self, mesh: AnyMesh, timeout: float = 0.0) -> None:
        super().__init__(mesh, timeout)
        medium = HALVED_BYTES * mesh.size if mesh.size >= HALVED_SIZE else TREE_BYTES
        self.limits = (TREE_BYTES, max(TREE_BYTES, medium))
        self._workspace = Workspace()

    def prepare(self, batch: Batch) -> AbstractContextManager[Batch]:
        """Give the batch that `run` takes; large arrays of an all-reduce are converted segment by segment."""
        return nullcontext(batch) if self._is_narrow(batch) else batch.in_wire_type()

    def _is_narrow(self, batch: Batch) -> bool:
        """Whether large arrays are reduced whose type is narrower than that of partial results."""
        is_large = batch.kind == CollectiveKind.ALLREDUCE and self._class_of(batch) == _LARGE
        return is_large and batch.arithmetic.working_dtype != batch.dtype

    def _class_of(self, batch: Batch) -> int:
        return class_of(batch.entries[0].request, self.limits)

    def announce(self, note: bytes, batch: Batch | None) -> int:
        """Send the arrays of the first batch, too, if they are small."""
        payload: list[memoryview] = []
        if batch is not None and self._is_inline(batch):
            whole: Flat = np.empty(batch.count, batch.dtype)
            batch.read(0, batch.count, whole)
            payload.append(whole.view(np.uint8).data)
        return self._tell(FrameKind.ANNOUNCE, note, payload)

    def _is_inline(self, batch: Batch) -> bool:
        is_small = batch.nbytes <= INLINE_BYTES and self._mesh.size <= INLINE_SIZE
        return batch.kind == CollectiveKind.ALLREDUCE and is_small

    def run(self, batch: Batch, frames: list[Frame] | None) -> None:
        """See `ArrayPath.run`."""
        mesh, timeout = self._mesh, self._timeout
        if batch.kind == CollectiveKind.ALLREDUCE:
            if frames is not None and self._is_inline(batch):
                self._reduce_inline(batch, frames)
            else:
                self._reduce(batch)
        elif batch.kind == CollectiveKind.ALLGATHER:
            target = batch.entries[0].target
            start = sum(batch.counts[: mesh.rank])
            target[start : start + batch.count] = batch.entries[0].source
            gather_by_ring(mesh, self._next(), RingArray([target]), batch.counts, timeout)
        elif batch.kind == CollectiveKind.BROADCAST:
            whole: Flat = np.empty(batch.count, batch.dtype)
            if batch.argument == mesh.rank:
                batch.read(0, batch.count, whole)
            broadcast_by_tree(mesh, self._next(), whole, batch.argument, timeout)
            batch.write(0, batch.count, whole)
        elif batch.kind == CollectiveKind.REDUCESCATTER:
            self._reduce_scatter(batch)
        elif batch.kind == CollectiveKind.ALLTOALL:
            self._exchange(batch)

    def _reduce(self, batch: Batch) -> None:
        """Run an all-reduce. All arrays of the batch have the same class of sizes."""
        mesh, parts, arithmetic = self._mesh, self._mesh.size, batch.arithmetic
        if self._is_narrow(batch):
            for part in batch.cut(SEGMENT_BYTES):
                with part.in_wire_type(self._workspace) as narrow:
                    self._reduce_narrow(narrow)
        elif self._class_of(batch) == _SMALL:
            work = batch.load_target(parts)
            reduce_by_tree(mesh, self._next(), work, arithmetic, self._timeout)
            batch.store_target(work, parts)
        elif self._class_of(batch) == _MEDIUM:
            self._reduce_medium(batch)
        else:
            batch.load_targets()
            result = RingArray(batch.target_chunks(parts))
            bounds = batch.bounds_of_chunks(parts)
            reduce_by_ring(mesh, self._next(), result, bounds, arithmetic, parts, self._timeout)

    def _reduce_medium(self, batch: Batch) -> None:
        parts = largest_power(self._mesh.size)
        bounds, work = batch.bounds_of_chunks(parts), None
        if batch.arithmetic.working_dtype == batch.dtype:
            batch.load_targets()
            result = RingArray(batch.target_chunks(parts))
        else:
            work = batch.load_target(parts)
            result = RingArray([work])
        reduce_by_halving(self._mesh, self._next(), result, bounds, batch.arithmetic, self._timeout)
        if work is not None:
            batch.store_target(work, parts)

    def _reduce_narrow(self, batch: Batch) -> None:
        """Reduce arrays whose type is narrower than that of partial results: the results are sent in their own type."""
        size, rank, dtype = self._mesh.size, self._mesh.rank, batch.arithmetic.working_dtype
        bounds, result = batch.bounds_of_chunks(size), RingArray(batch.target_chunks(size))
        part = self._workspace.take("part", bounds[rank + 1] - bounds[rank], dtype)
        work = self._workspace.take("partial results", batch.count, dtype)
        source = RingArray(batch.source_chunks(size))
        scatter_by_ring(self._mesh, self._next(), source, part, bounds, batch.arithmetic, self._timeout, work)
        start = 0
        for target in result.parts(bounds[rank], bounds[rank + 1]):
            batch.arithmetic.store(part[start : start + len(target)], target)
            start += len(target)
        counts = [high - low for low, high in itertools.pairwise(bounds)]
        gather_by_ring(self._mesh, self._next(), result, counts, self._timeout)

    def _reduce_scatter(self, batch: Batch) -> None:
        entry, arithmetic = batch.entries[0], batch.arithmetic
        parts, dtype = batch.parts_from(self._mesh.rank), arithmetic.working_dtype
        begin, end = parts[self._mesh.rank]
        if batch.count * dtype.itemsize <= TREE_BYTES:  # a tree needs fewer messages
            work: Flat = np.empty(batch.count, dtype)
            arithmetic.load(entry.source, work)
            reduce_by_tree(self._mesh, self._next(), work, arithmetic, self._timeout)
            arithmetic.store(work[begin:end], entry.target)
            return
        bounds = [0, *(high for _, high in parts)]
        part = entry.target if dtype == batch.dtype else np.empty(end - begin, dtype)
        source = RingArray([entry.source])
        scatter_by_ring(self._mesh, self._next(), source, part, bounds, arithmetic, self._timeout)
        if part is not entry.target:
            arithmetic.store(part, entry.target)

    def _exchange(self, batch: Batch) -> None:
        entry, own = batch.entries[0], self._mesh.rank
        outgoing = {rank: entry.source[slice(*part)] for rank, part in enumerate(batch.parts_from(own))}
        incoming = {rank: entry.target[slice(*part)] for rank, part in enumerate(batch.parts_into(own))}
        incoming[own][...] = outgoing[own]
        exchange_directly(self._mesh, self._next(), outgoing, incoming, self._timeout)

    def _reduce_inline(self, batch: Batch, frames: list[Frame]) -> None:
        own: Flat = np.empty(batch.count, batch.dtype)
        batch.read(0, batch.count, own)
        sources = {self._mesh.rank: own}
        for number, frame in zip(self._others, frames, strict=True):
            if frame.payload.nbytes != own.nbytes:
                self._mesh.fail(f"rank {number} sent {frame.payload.nbytes} bytes in place of {own.nbytes}")
            sources[number] = np.frombuffer(frame.payload, batch.dtype)
        batch.write_combined([sources[rank] for rank in range(self._mesh.size)], self._mesh.size, in_pairs=True)


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
        self._hosts = len(hosts)
        self._near: MemoryPath | None = None
        if len(own) > 1:
            self._near = MemoryPath(
                SubMesh(mesh, own), {place: memories[rank] for place, rank in enumerate(own)}, timeout
            )
        self._far = SubMesh(mesh, [host[0] for host in hosts]) if mesh.rank == own[0] else None

    def _reduce(self, batch: Batch) -> None:
        """See `SocketPath._reduce`."""
        if self._class_of(batch) == _SMALL:
            super()._reduce(batch)
            return
        for segment in batch.cut(SEGMENT_BYTES):
            with segment.in_wire_type(self._workspace) as part:
                self._reduce_segment(part)

    def _reduce_segment(self, part: Batch) -> None:
        work = part.load_target(self._hosts)
        sequence = self._next()  # every rank counts, also one that takes no part
        self._reduce_near(work, part.arithmetic)
        if self._far is not None:
            bounds, size = part.bounds_of_chunks(self._hosts), self._mesh.size
            reduce_by_ring(self._far, sequence, RingArray([work]), bounds, part.arithmetic, size, self._timeout)
        self._tell_near(work)
        part.store_target(work, self._hosts)

    def _reduce_near(self, part: Flat, arithmetic: Arithmetic) -> None:
        """Reduce the arrays of the ranks of this host to the array of the first of them."""
        if self._near is not None:
            is_average = arithmetic.reduction == Reduction.AVERAGE
            partial = Reduction.SUM if is_average else arithmetic.reduction
            self._near.run(_make_batch(CollectiveKind.ALLREDUCE, part, partial, self._near.size), None, root=0)

    def _tell_near(self, part: Flat) -> None:
        """Give the array of the first rank of this host to the others."""
        if self._near is not None:
            self._near.run(_make_batch(CollectiveKind.BROADCAST, part, 0, self._near.size), None)


def _make_batch(kind: CollectiveKind, part: Flat, argument: int, size: int) -> Batch:
    request = Request(kind, "", part.dtype, part.shape, argument)
    return Batch([FusedArray(request, part, part)], [request] * size)

"""The algorithms by which arrays pass between ranks over connections: a ring for large arrays, a tree for small ones.

A ring: each rank receives from the previous rank and sends to the next rank.
An all-reduce cuts the array into as many chunks as there are ranks. In the first round each chunk travels around the
ring, and every rank adds its own values to the chunk. In the second round each complete chunk travels around the ring
to all ranks. A reduce-scatter has only the first round. A rank forwards a chunk piece by piece, so all connections are
used at the same time. Every run adds the values in the same order, and all ranks receive copies of the same sums. So
the results are equal bit for bit.

In an all-to-all each rank sends to every other rank directly.

A tree takes about log2(size) steps, for reductions of small arrays and for broadcasts of arrays of any size. All-reduce
uses recursive doubling. In every step two ranks exchange their partial results. Both ranks reduce the two results in
the order of the ranks, so both get the same bits. If the number of ranks is not a power of two, the surplus ranks first
send their arrays to a neighbour, which sends the result back at the end.

Between many ranks, arrays of a medium size are halved. In every step two ranks exchange halves of what is left, so that
each of them reduces one half; at the end each rank has its chunk of the result. Then the chunks are gathered in the
opposite order. A ring sends as many bytes, but in 2 (size - 1) steps in place of 2 log2(size).

Sources: P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009. R. Thakur,
R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, 2005.
"""

from __future__ import annotations

import operator
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.frames import PIECE_BYTES, FrameKind
from paddle_cluster.elastic.collectives.mesh import AnyMesh
from paddle_cluster.elastic.collectives.reducing import Arithmetic


class RingArray:
    """The array that a ring reduces or gathers: one or several flat arrays of a type, one after another."""

    def __init__(self, arrays: Sequence[Flat]) -> None:
        self._arrays, self.dtype = arrays, arrays[0].dtype
        self._starts = bounds_of([len(array) for array in arrays])
        self.length = self._starts.pop()

    def parts(self, begin: int, end: int) -> list[Flat]:
        """Return flat arrays that are the range [begin, end) together, in order, without a copy."""
        found = []
        for number in range(max(0, bisect_right(self._starts, begin) - 1), len(self._arrays)):
            array, start = self._arrays[number], self._starts[number]
            if start >= end:
                break
            part = array[max(0, begin - start) : end - start]
            if len(part):
                found.append(part)
        return found

    def views(self, begin: int, end: int) -> list[memoryview]:
        """Return the bytes of a range."""
        return [part.view(np.uint8).data for part in self.parts(begin, end)]


class RingPiece(NamedTuple):
    """A piece that arrives from the previous rank. The piece is the range [begin, end) of the array.

    Attributes: is_final: whether the values are complete; if not, this rank adds its own values.  forward: whether this
        rank sends the piece to the next rank.
    """

    begin: int
    end: int
    is_final: bool
    forward: bool


def cut(begin: int, end: int, itemsize: int) -> list[tuple[int, int]]:
    """Cut the range [begin, end) of an array into pieces; return the range of each piece, in elements."""
    step = PIECE_BYTES // itemsize
    return [(low, min(low + step, end)) for low in range(begin, end, step)]


def bounds_of(counts: Sequence[int]) -> list[int]:
    """Return the start of each of the consecutive parts with these lengths, and the end of the last part."""
    bounds = [0]
    for count in counts:
        bounds.append(bounds[-1] + count)
    return bounds


def plan_reduction(bounds: Sequence[int], itemsize: int, rank: int) -> tuple[list[tuple[int, int]], list[RingPiece]]:
    """Return the pieces of an all-reduce that this rank sends first, and the pieces that it receives, in order.

    Args: bounds: start of each rank's chunk, and the end of the last one; a rank completes its own chunk.
    """
    size = len(bounds) - 1
    first, incoming = plan_scattering(bounds, itemsize, rank)
    incoming = [piece._replace(forward=True) for piece in incoming]
    for step in range(size - 1):
        chunk = (rank - step - 1) % size
        final = cut(bounds[chunk], bounds[chunk + 1], itemsize)
        incoming += [RingPiece(*one, True, step < size - 2) for one in final]
    return first, incoming


def plan_scattering(bounds: Sequence[int], itemsize: int, rank: int) -> tuple[list[tuple[int, int]], list[RingPiece]]:
    """Return the pieces of a reduce-scatter that this rank sends first, and those that it receives, in order.

    Args: bounds: start of each rank's chunk, and the end of the last one; a rank completes its own chunk.
    """
    size = len(bounds) - 1

    def pieces(chunk: int) -> list[tuple[int, int]]:
        return cut(bounds[chunk % size], bounds[chunk % size + 1], itemsize)

    steps = range(2, size + 1)
    return pieces(rank - 1), [RingPiece(*one, False, step < size) for step in steps for one in pieces(rank - step)]


def plan_gathering(counts: Sequence[int], itemsize: int, rank: int) -> tuple[list[tuple[int, int]], list[RingPiece]]:
    """Return the pieces of an all-gather that this rank sends first, and the pieces that it receives, in order.

    Args: counts: number of elements of each rank's part.
    """
    size, bounds = len(counts), bounds_of(counts)

    def pieces(part: int) -> list[tuple[int, int]]:
        return cut(bounds[part % size], bounds[part % size + 1], itemsize)

    incoming = [RingPiece(*one, True, step < size - 2) for step in range(size - 1) for one in pieces(rank - step - 1)]
    return pieces(rank), incoming


def reduce_by_ring(
    mesh: AnyMesh,
    sequence: int,
    work: RingArray,
    bounds: Sequence[int],
    arithmetic: Arithmetic,
    size: int,
    timeout: float,
) -> None:
    """Replace the array of every rank by the result for all arrays.

    Args: work: array of the type `working_dtype`.  bounds: start of each chunk, and the end of the last one; the order
        of a sum depends on the chunk.  size: number of arrays that are reduced.  timeout: maximum seconds
        between two pieces.
    """
    low, high = bounds[mesh.rank], bounds[mesh.rank + 1]

    def add(piece: RingPiece, values: Flat) -> None:
        start = 0
        for target in work.parts(piece.begin, piece.end):
            arithmetic.fold(target, values[start : start + len(target)], target)
            if low <= piece.begin < high:
                arithmetic.finish(target, size)
            start += len(target)

    _pass_round(mesh, sequence, work, plan_reduction(bounds, work.dtype.itemsize, mesh.rank), add, timeout)


def scatter_by_ring(
    mesh: AnyMesh,
    sequence: int,
    source: RingArray,
    target: Flat,
    bounds: Sequence[int],
    arithmetic: Arithmetic,
    timeout: float,
    work: Flat | None = None,
) -> None:
    """Write the result for this rank's chunk of all arrays to `target`.

    The first pieces are sent in the type of the source, which for float16 is half as long, and exact.

    Args: source: this rank's array, which does not change.  target: array of the type `working_dtype`.  bounds: start
        of each rank's chunk, and the end of the last one.  timeout: maximum seconds between two pieces.  work: memory
        for the partial results that this rank passes on, as long as the source; None: new memory.
    """
    if work is None:  # the system gives memory only for the parts that are written
        work = np.empty(source.length, target.dtype)
    is_exact = arithmetic.prescale == 1.0
    is_same = source.dtype == target.dtype
    mine, theirs = (np.empty(PIECE_BYTES // target.itemsize, target.dtype) for _ in range(2))

    def own(begin: int, end: int, memory: Flat) -> Flat:
        parts = source.parts(begin, end)
        if is_same and is_exact and len(parts) == 1:
            return parts[0]
        start = 0
        for part in parts:
            arithmetic.load(part, memory[start : start + len(part)])
            start += len(part)
        return memory[: end - begin]

    first, incoming = plan_scattering(bounds, work.itemsize, mesh.rank)
    left, right, low = (mesh.rank - 1) % mesh.size, (mesh.rank + 1) % mesh.size, bounds[mesh.rank]
    chunk = (mesh.rank - 2) % mesh.size  # of the first round, which the previous rank has not added to anything
    unreduced = len(cut(bounds[chunk], bounds[chunk + 1], work.itemsize)) if is_exact else 0
    sent = len(first)
    for number, (begin, end) in enumerate(first):
        views = source.views(begin, end) if is_exact else [own(begin, end, work[begin:end]).view(np.uint8).data]
        mesh.send(right, FrameKind.DATA, sequence, b"", views, number)
    for number, (begin, end, _, forward) in enumerate(incoming):
        dtype = source.dtype if number < unreduced else work.dtype
        payload = _take_piece(mesh, left, sequence, number, (end - begin) * dtype.itemsize, timeout)
        values: Flat = np.frombuffer(payload, dtype)
        if dtype != work.dtype:
            arithmetic.load(values, theirs[: len(values)])
            values = theirs[: len(values)]
        out = work[begin:end] if forward else target[begin - low : end - low]
        arithmetic.fold(out, values, own(begin, end, mine))
        if forward:
            mesh.send(right, FrameKind.DATA, sequence, b"", [out.view(np.uint8).data], sent)
            sent += 1
        else:
            arithmetic.finish(out, mesh.size)
    mesh.flush(timeout)


def gather_by_ring(mesh: AnyMesh, sequence: int, target: RingArray, counts: Sequence[int], timeout: float) -> None:
    """Fill the array with the parts of all ranks; this rank's own part is already in place.

    Args: counts: number of elements of each rank's part.  timeout: maximum seconds between two pieces.
    """
    plan = plan_gathering(counts, target.dtype.itemsize, mesh.rank)
    _pass_round(mesh, sequence, target, plan, None, timeout)


def _pass_round(
    mesh: AnyMesh,
    sequence: int,
    work: RingArray,
    plan: tuple[list[tuple[int, int]], list[RingPiece]],
    add: Callable[[RingPiece, Flat], None] | None,
    timeout: float,
) -> None:
    first, incoming = plan
    left, right = (mesh.rank - 1) % mesh.size, (mesh.rank + 1) % mesh.size
    sent = 0
    expected = mesh.peers[left].expected
    for number, piece in enumerate(incoming):
        if piece.is_final:
            # final values are received in their place, without a copy; partial results have to be added first
            expected[sequence, number] = work.views(piece.begin, piece.end)
    for begin, end in first:
        mesh.send(right, FrameKind.DATA, sequence, b"", work.views(begin, end), sent)
        sent += 1
    for number, piece in enumerate(incoming):
        places = work.views(piece.begin, piece.end)
        if piece.is_final:
            _take_into(mesh, left, sequence, number, places, timeout)
        else:
            nbytes = (piece.end - piece.begin) * work.dtype.itemsize
            payload = _take_piece(mesh, left, sequence, number, nbytes, timeout)
            assert add is not None
            add(piece, np.frombuffer(payload, work.dtype))
        if piece.forward:
            mesh.send(right, FrameKind.DATA, sequence, b"", places, sent)
            sent += 1
    mesh.flush(timeout)


def exchange_directly(
    mesh: AnyMesh, sequence: int, outgoing: Mapping[int, Flat], incoming: Mapping[int, Flat], timeout: float
) -> None:
    """Send an array to each other rank, and fill an array from each other rank; the arrays may be empty.

    Args: outgoing, incoming: arrays by rank.  timeout: maximum seconds between two pieces.
    """
    order = [(mesh.rank + step) % mesh.size for step in range(1, mesh.size)]  # else all would send to rank 0 first
    arriving = []
    for rank in reversed(order):
        view = incoming[rank].view(np.uint8).data
        for number, (begin, end) in enumerate(cut(0, len(view), 1)):
            mesh.peers[rank].expected[sequence, number] = [view[begin:end]]
            arriving.append((number, rank, view[begin:end]))
    leaving = []
    for rank in order:
        view = outgoing[rank].view(np.uint8).data
        leaving += [(number, rank, view[begin:end]) for number, (begin, end) in enumerate(cut(0, len(view), 1))]
    # the first piece of every rank, then the second ones, so that all connections are used at the same time
    for number, rank, part in sorted(leaving, key=operator.itemgetter(0)):
        mesh.send(rank, FrameKind.DATA, sequence, b"", [part], number)
    for number, rank, part in sorted(arriving, key=operator.itemgetter(0)):
        _take_into(mesh, rank, sequence, number, [part], timeout)
    mesh.flush(timeout)


class Pairs(NamedTuple):
    """The place of a rank among a power of two of ranks, which exchange in pairs.

    Each rank beyond the power of two gives its array to a neighbour, and gets the result.
    Attributes: power: number of ranks that exchange.  extra: number of ranks that do not.
    """

    rank: int
    power: int
    extra: int

    @classmethod
    def of(cls, rank: int, size: int) -> Pairs:
        """Return the place of a rank."""
        power = largest_power(size)
        return cls(rank, power, size - power)

    @property
    def giver(self) -> int | None:
        """The rank that gives its array to this one; None: no rank does."""
        return self.rank + 1 if self.rank < 2 * self.extra and self.rank % 2 == 0 else None

    @property
    def taker(self) -> int | None:
        """The rank to which this one gives its array; None: this one exchanges itself."""
        return self.rank - 1 if self.rank < 2 * self.extra and self.rank % 2 else None

    @property
    def place(self) -> int:
        """The number of this rank among those that exchange, in the order of the ranks."""
        return self.rank // 2 if self.rank < 2 * self.extra else self.rank - self.extra

    def partner(self, distance: int) -> int:
        """Return the rank at the other end of a pair."""
        other = self.place ^ distance
        return 2 * other if other < self.extra else other + self.extra


def largest_power(size: int) -> int:
    """Return the largest power of two that is not larger than `size`."""
    return 1 << (size.bit_length() - 1)


def reduce_by_tree(mesh: AnyMesh, sequence: int, work: Flat, arithmetic: Arithmetic, timeout: float) -> None:
    """Replace the array of every rank by the result for all arrays; an array must fit into a single message."""
    rank, size = mesh.rank, mesh.size
    pairs = Pairs.of(rank, size)
    if pairs.taker is not None:
        _send(mesh, pairs.taker, sequence, work)
        work[...] = _receive(mesh, pairs.taker, sequence, work, timeout)
        return
    if pairs.giver is not None:
        arithmetic.fold(work, work, _receive(mesh, pairs.giver, sequence, work, timeout))
    distance = 1
    while distance < pairs.power:
        partner = pairs.partner(distance)
        _send(mesh, partner, sequence, work)
        theirs = _receive(mesh, partner, sequence, work, timeout)
        # both partners fold in the order of the ranks, and so get the same bits
        first, second = (work, theirs) if rank < partner else (theirs, work)
        mesh.flush(timeout)  # the sent message refers to this array, which changes now
        arithmetic.fold(work, first, second)
        distance *= 2
    arithmetic.finish(work, size)
    if pairs.giver is not None:
        _send(mesh, pairs.giver, sequence, work)
    mesh.flush(timeout)


def reduce_by_halving(
    mesh: AnyMesh, sequence: int, work: RingArray, bounds: Sequence[int], arithmetic: Arithmetic, timeout: float
) -> None:
    """Replace the array of every rank by the result for all arrays.

    Args: work: array of the type `working_dtype`.  bounds: start of each chunk, and the end of the last one; there are
        as many chunks as `largest_power` of the ranks.  timeout: maximum seconds between two pieces.
    """
    pairs = Pairs.of(mesh.rank, mesh.size)
    transfer = _Transfer(mesh, sequence, work, timeout)
    if pairs.taker is not None:
        transfer.send(pairs.taker, 0, work.length)
        transfer.receive(pairs.taker, 0, work.length)
        mesh.flush(timeout)
        return
    if pairs.giver is not None:
        transfer.fold(pairs.giver, 0, work.length, arithmetic)
    first, last = 0, pairs.power  # the chunks that this rank reduces
    halvings: list[tuple[int, int, int]] = []
    distance = pairs.power // 2
    while distance:
        middle, partner = (first + last) // 2, pairs.partner(distance)
        halvings.append((partner, first, last))
        is_upper = bool(pairs.place & distance)
        own, other = ((middle, last), (first, middle)) if is_upper else ((first, middle), (middle, last))
        transfer.send(partner, bounds[other[0]], bounds[other[1]])
        first, last = own
        transfer.fold(partner, bounds[first], bounds[last], arithmetic)
        distance //= 2
    for part in work.parts(bounds[first], bounds[last]):
        arithmetic.finish(part, mesh.size)
    for partner, low, high in reversed(halvings):
        transfer.send(partner, bounds[first], bounds[last])
        begin, end = (low, first) if low < first else (last, high)
        transfer.receive(partner, bounds[begin], bounds[end])
        first, last = low, high
    if pairs.giver is not None:
        transfer.send(pairs.giver, 0, work.length)
    mesh.flush(timeout)


class _Transfer:
    """Sends and receives ranges of an array in one exchange, and numbers their pieces by rank."""

    def __init__(self, mesh: AnyMesh, sequence: int, work: RingArray, timeout: float) -> None:
        self._mesh, self._sequence, self._work, self._timeout = mesh, sequence, work, timeout
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    def send(self, rank: int, begin: int, end: int) -> None:
        """Send a range, which must not change before the group has flushed, or the rank has used the range."""
        for low, high in cut(begin, end, self._work.dtype.itemsize):
            views = self._work.views(low, high)
            self._mesh.send(rank, FrameKind.DATA, self._sequence, b"", views, self._sent[rank])
            self._sent[rank] += 1

    def receive(self, rank: int, begin: int, end: int) -> None:
        """Receive the values of a range."""
        for low, high in cut(begin, end, self._work.dtype.itemsize):
            number, places = self._received[rank], self._work.views(low, high)
            self._received[rank] += 1
            self._mesh.peers[rank].expected[self._sequence, number] = places
            _take_into(self._mesh, rank, self._sequence, number, places, self._timeout)

    def fold(self, rank: int, begin: int, end: int, arithmetic: Arithmetic) -> None:
        """Reduce the values of a range with those of another rank, in the order of the ranks."""
        for low, high in cut(begin, end, self._work.dtype.itemsize):
            number, dtype, start = self._received[rank], self._work.dtype, 0
            self._received[rank] += 1
            nbytes = (high - low) * dtype.itemsize
            payload: Flat = np.frombuffer(
                _take_piece(self._mesh, rank, self._sequence, number, nbytes, self._timeout), dtype
            )
            for part in self._work.parts(low, high):
                theirs = payload[start : start + len(part)]
                first, second = (part, theirs) if self._mesh.rank < rank else (theirs, part)
                arithmetic.fold(part, first, second)
                start += len(part)


def broadcast_by_tree(mesh: AnyMesh, sequence: int, work: Flat, root: int, timeout: float) -> None:
    """Send the array of the root to every rank by a binomial tree, piece by piece."""
    size = mesh.size
    place = (mesh.rank - root) % size
    lowest = place & -place if place else 1 << size.bit_length()
    steps = [1 << bit for bit in range(size.bit_length()) if 1 << bit < lowest and place + (1 << bit) < size]
    # the largest subtree gets each piece first
    children = [(place + step + root) % size for step in reversed(steps)]
    parent = (place - lowest + root) % size
    view = work.view(np.uint8).data
    pieces = cut(0, len(view), 1)
    if place:
        for number, (begin, end) in enumerate(pieces):
            mesh.peers[parent].expected[sequence, number] = [view[begin:end]]
    for number, (begin, end) in enumerate(pieces):
        if place:
            _take_into(mesh, parent, sequence, number, [view[begin:end]], timeout)
        for child in children:
            mesh.send(child, FrameKind.DATA, sequence, b"", [view[begin:end]], number)
    mesh.flush(timeout)


def _take_piece(mesh: AnyMesh, rank: int, sequence: int, number: int, nbytes: int, timeout: float) -> memoryview:
    """Wait for a piece of an array, and return its bytes."""
    mesh.wait([rank], time.monotonic() + timeout)
    payload = mesh.take(rank, FrameKind.DATA, sequence, number).payload
    if payload.nbytes != nbytes:
        mesh.fail(f"rank {rank} sent a piece of {payload.nbytes} bytes in place of {nbytes}")
    return payload


def _take_into(
    mesh: AnyMesh, rank: int, sequence: int, number: int, places: Sequence[memoryview], timeout: float
) -> None:
    """Wait for a piece of an array, which is expected in these places."""
    expected = mesh.peers[rank].expected
    mesh.wait([rank], time.monotonic() + timeout)
    if (sequence, number) not in expected:
        mesh.take(rank, FrameKind.DATA, sequence, number)  # it has arrived in its places, whose length it has
        return
    payload = _take_piece(mesh, rank, sequence, number, sum(one.nbytes for one in places), timeout)
    del expected[sequence, number]  # the piece arrived before it was expected
    start = 0
    for one in places:
        one[:] = payload[start : start + one.nbytes]
        start += one.nbytes


def _send(mesh: AnyMesh, rank: int, sequence: int, work: Flat) -> None:
    mesh.send(rank, FrameKind.DATA, sequence, b"", [work.view(np.uint8).data])


def _receive(mesh: AnyMesh, rank: int, sequence: int, work: Flat, timeout: float) -> Flat:
    mesh.wait([rank], time.monotonic() + timeout)
    payload = mesh.take(rank, FrameKind.DATA, sequence).payload
    if payload.nbytes != work.nbytes:
        mesh.fail(f"rank {rank} sent {payload.nbytes} bytes in place of {work.nbytes}")
    return np.frombuffer(payload, work.dtype)

"""Fuses requests into batches, and reads, reduces and writes the arrays of a batch as a single array.

The cost of a small array is mostly the cost of its messages. Therefore requests with the same kind, type, reduction and
factors form a batch of up to `FUSION_BYTES`. The other modules treat the arrays of a batch as a single concatenated
array. No I/O.
"""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_cluster.elastic.collectives.dtypes import Flat, convert
from paddle_cluster.elastic.collectives.reducing import Arithmetic
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Request, split_evenly

FUSION_BYTES = 64 << 20
FUSED_SMALL_BYTES = 1 << 20  # a batch of small arrays is sent in a single message


class FusedArray(NamedTuple):
    """A request with its flat arrays. `source` contains the values of this rank, and `target` receives the result.

    `source` and `target` may be the same array. In an all-reduce their type may be another floating type than that of
    the request, in which the values are sent.
    """

    request: Request
    source: Flat
    target: Flat


class Workspace:
    """Memory that batches use one after another, because the system would clear new memory for each of them."""

    def __init__(self) -> None:
        self._of: dict[str, npt.NDArray[np.uint8]] = {}

    def take(self, what: str, count: int, dtype: np.dtype[Any]) -> Flat:
        """Return a flat array with any values; the next call with the same `what` gives the same memory again."""
        found, nbytes = self._of.get(what), count * dtype.itemsize
        if found is None or len(found) < nbytes:
            found = self._of[what] = np.empty(nbytes, np.uint8)
        return found[:nbytes].view(dtype)


class Batch:
    """Requests that run together.

    Args: requests: the requests of all ranks for the first entry, by rank.
    Attributes: count: number of elements of this rank's arrays.  counts: number of elements of the first array, by
        rank; the numbers differ only in an all-gather and an all-to-all.
    """

    def __init__(self, entries: Sequence[FusedArray], requests: Sequence[Request]) -> None:
        first = entries[0].request
        self.kind, self.dtype, self.argument = first.kind, first.dtype, first.argument
        self.arithmetic = Arithmetic.of(first)
        self.entries = entries
        self.counts = [one.elements for one in requests]
        self._requests = requests
        self._starts = list(itertools.accumulate((entry.request.elements for entry in entries), initial=0))
        self.count = self._starts.pop()

    def parts_from(self, rank: int) -> list[tuple[int, int]]:
        """Return the start and end of the part of a rank's array that each rank gets, in elements.

        Only an all-to-all and a reduce-scatter have parts.
        """
        request = self._requests[rank]
        is_split = self.kind == CollectiveKind.ALLTOALL
        rows = request.splits if is_split else split_evenly(request.shape[0], len(self._requests))
        bounds = [request.row * row for row in itertools.accumulate(rows, initial=0)]
        return list(itertools.pairwise(bounds))

    def parts_into(self, rank: int) -> list[tuple[int, int]]:
        """Return the start and end of the part of a rank's result that comes from each rank, in elements."""
        lengths = (one.row * one.splits[rank] for one in self._requests)
        bounds = itertools.accumulate(lengths, initial=0)
        return list(itertools.pairwise(bounds))

    @property
    def nbytes(self) -> int:
        """The bytes of this rank's arrays."""
        return self.count * self.dtype.itemsize

    def _cuts(self, begin: int, end: int) -> Iterator[tuple[FusedArray, slice, slice]]:
        """Yield each array that overlaps the range [begin, end) of the batch.

        The first slice is the overlap within the array, and the second slice is the overlap within the range.
        """
        for number in range(max(0, bisect_right(self._starts, begin) - 1), len(self.entries)):
            entry, start = self.entries[number], self._starts[number]
            if start >= end:
                return
            stop = start + len(entry.source)
            low, high = max(begin, start), min(end, stop)
            if low < high:
                yield entry, slice(low - start, high - start), slice(low - begin, high - begin)

    def read(self, begin: int, end: int, out: Flat) -> None:
        """Copy the elements [begin, end) of this rank's arrays to `out`, in the type in which they are sent."""
        for entry, inner, outer in self._cuts(begin, end):
            convert(entry.source[inner], out[outer])

    def view(self, begin: int, end: int) -> Flat | None:
        """Return the elements [begin, end) of this rank's arrays without a copy; None if they are no single array."""
        for entry, inner, outer in self._cuts(begin, end):
            is_whole = outer == slice(0, end - begin) and entry.source.dtype == self.dtype
            return entry.source[inner] if is_whole else None
        return None

    def write(self, begin: int, end: int, values: Flat) -> None:
        """Copy values to the elements [begin, end) of the results."""
        for entry, inner, outer in self._cuts(begin, end):
            convert(values[outer], entry.target[inner])

    @contextlib.contextmanager
    def in_wire_type(self, memory: Workspace | None = None) -> Iterator[Batch]:
        """Give this batch with arrays of the type in which they are sent; at the end, write its results.

        Args: memory: where converted arrays are; None: in new memory.
        """
        if all(entry.source.dtype == entry.target.dtype == self.dtype for entry in self.entries):
            yield self
            return
        whole = (memory or Workspace()).take("wire", self.count, self.dtype)
        self.read(0, self.count, whole)
        places = zip(self._starts, [*self._starts[1:], self.count], strict=True)
        parts = [whole[start:stop] for start, stop in places]
        entries = [FusedArray(one.request, part, part) for one, part in zip(self.entries, parts, strict=True)]
        yield Batch(entries, self._requests)
        self.write(0, self.count, whole)

    def write_combined(self, sources: Sequence[Flat], size: int, *, in_pairs: bool = False) -> None:
        """Write the reduction of the sources, one whole array of each rank, to the results.

        Args: in_pairs: combine the arrays in the order of a tree.
        """
        combine = self.arithmetic.combine_in_pairs if in_pairs else self.arithmetic.combine
        for entry, inner, outer in self._cuts(0, self.count):
            combine(entry.target[inner], [source[outer] for source in sources], size)

    def _chunks(self, parts: int) -> Iterator[tuple[FusedArray, slice, slice]]:
        """Yield each array's part of each chunk; the slices are those within the array and within all chunks."""
        place = 0
        for number in range(parts):
            for entry in self.entries:
                count = len(entry.source)
                low, high = count * number // parts, count * (number + 1) // parts
                yield entry, slice(low, high), slice(place, place + high - low)
                place += high - low

    def bounds_of_chunks(self, parts: int) -> list[int]:
        """Return the start of each chunk, and the end of the last one.

        A chunk has an equal part of each array. So the chunk of an element, and with it the order of a sum, does not
        depend on the other arrays of the batch, which depend on the time at which the ranks submit them.
        """
        counts = [len(entry.source) for entry in self.entries]
        return [sum(count * number // parts for count in counts) for number in range(parts + 1)]

    def source_chunks(self, parts: int) -> list[Flat]:
        """Return each array's part of each chunk, one after another."""
        return [entry.source[inner] for entry, inner, _ in self._chunks(parts)]

    def target_chunks(self, parts: int) -> list[Flat]:
        """Return each result's part of each chunk, one after another."""
        return [entry.target[inner] for entry, inner, _ in self._chunks(parts)]

    def cut(self, nbytes: int) -> Iterator[Batch]:
        """Yield batches of at most this number of bytes, with the same arrays, which are cut from their beginnings."""
        step = max(1, nbytes // self.dtype.itemsize)
        pieces: list[FusedArray] = []
        room = step
        for entry in self.entries:
            for begin in range(0, len(entry.source), step):
                source, target = entry.source[begin : begin + step], entry.target[begin : begin + step]
                if len(source) > room:
                    yield Batch(pieces, [pieces[0].request] * len(self._requests))
                    pieces, room = [], step
                pieces.append(FusedArray(entry.request._replace(shape=source.shape), source, target))
                room -= len(source)
        if pieces:
            yield Batch(pieces, [pieces[0].request] * len(self._requests))

    def load_targets(self) -> None:
        """Write this rank's arrays, scaled, to the results, in which a reduction computes its partial results.

        The results must have the type of partial results.
        """
        for entry in self.entries:
            if entry.source is not entry.target or self.arithmetic.prescale != 1.0:
                self.arithmetic.load(entry.source, entry.target)

    def load_target(self, parts: int) -> Flat:
        """Return this rank's arrays, scaled, as one array in which a reduction computes its partial results.

        If the batch has a single array of the right type, the returned array is the result itself.
        Args: parts: number of chunks, one after another, of the returned array.
        """
        work = self.arithmetic.working_dtype
        if len(self.entries) == 1:
            entry = self.entries[0]
            whole = entry.target if work == self.dtype else np.empty(self.count, work)
            if entry.source is not whole or self.arithmetic.prescale != 1.0:
                self.arithmetic.load(entry.source, whole)
            return whole
        whole = np.empty(self.count, work)
        for entry, inner, outer in self._chunks(parts):
            self.arithmetic.load(entry.source[inner], whole[outer])
        return whole

    def store_target(self, whole: Flat, parts: int) -> None:
        """Write the results from the array of `load_target`, which had the same number of chunks."""
        if len(self.entries) == 1 and whole is self.entries[0].target:
            return
        for entry, inner, outer in self._chunks(parts):
            self.arithmetic.store(whole[outer], entry.target[inner])


def class_of(request: Request, limits: Sequence[int]) -> int:
    """Return the number of the limits, in bytes of partial results, over which an all-reduce is.

    For any other collective, it is the number of all limits.
    """
    if request.kind != CollectiveKind.ALLREDUCE:
        return len(limits)
    return bisect_left(limits, _work_bytes(request))


def _work_bytes(request: Request) -> int:
    return request.elements * Arithmetic.of(request).working_dtype.itemsize


def fuse(
    entries: Sequence[FusedArray], requests: Sequence[Sequence[Request]], limits: Sequence[int] = ()
) -> list[Batch]:
    """Return the batches of the requests; the batches are the same on every rank.

    Args: requests: for each entry, the requests of all ranks by rank.  limits: arrays of each `class_of` are reduced in
        another order than those of the others, and so are in other batches; those of class 0 are sent in one message.
    """
    groups: list[list[int]] = []
    open_groups: dict[tuple[Any, ...], tuple[list[int], int]] = {}
    for number, entry in enumerate(entries):
        request = entry.request
        size_class = class_of(request, limits)
        small = size_class == 0 < len(limits)
        nbytes = _work_bytes(request) if small else request.nbytes
        key = (request.kind, request.dtype, request.argument, request.prescale, request.postscale, size_class)
        most = FUSED_SMALL_BYTES if small else FUSION_BYTES
        group, size = open_groups.get(key, ([], 0))
        can_join = request.kind in (CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST)
        if not group or not can_join or size + nbytes > most:
            group, size = [], 0
            groups.append(group)
        group.append(number)
        open_groups[key] = (group, size + nbytes)
    return [Batch([entries[number] for number in group], requests[group[0]]) for group in groups]

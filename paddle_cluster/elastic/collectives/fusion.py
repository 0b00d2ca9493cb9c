"""Fuses requests into batches, and reads, reduces and writes the arrays of a batch as a single array.

The cost of a small array is mostly the cost of its messages. Therefore requests with the same kind, type, reduction and
factors form a batch of up to `FUSION_BYTES`. The other modules treat the arrays of a batch as a single concatenated
array. No I/O.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from paddle_cluster.elastic.collectives.dtypes import Flat
from paddle_cluster.elastic.collectives.reducing import Arithmetic
from paddle_cluster.elastic.collectives.requests import CollectiveKind, Request, split_evenly

FUSION_BYTES = 64 << 20


class FusedArray(NamedTuple):
    """A request with its flat arrays. `source` contains the values of this rank, and `target` receives the result.

    `source` and `target` may be the same array.
    """

    request: Request
    source: Flat
    target: Flat


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
        """Copy the elements [begin, end) of this rank's arrays to `out`."""
        for entry, inner, outer in self._cuts(begin, end):
            out[outer] = entry.source[inner]

    def write(self, begin: int, end: int, values: Flat) -> None:
        """Copy values to the elements [begin, end) of the results."""
        for entry, inner, outer in self._cuts(begin, end):
            entry.target[inner] = values[outer]

    def write_combined(self, sources: Sequence[Flat], size: int) -> None:
        """Write the reduction of the sources, one whole array of each rank, to the results."""
        for entry, inner, outer in self._cuts(0, self.count):
            self.arithmetic.combine(entry.target[inner], [source[outer] for source in sources], size)

    def load_targets(self) -> None:
        """Write this rank's arrays, scaled, to the results, in which a reduction computes its partial results.

        The results must have the type of partial results.
        """
        for entry in self.entries:
            if entry.source is not entry.target or self.arithmetic.prescale != 1.0:
                self.arithmetic.load(entry.source, entry.target)

    def source_parts(self, begin: int, end: int) -> list[Flat]:
        """Return the elements [begin, end) of this rank's arrays, as one array of each of them."""
        return [entry.source[inner] for entry, inner, _ in self._cuts(begin, end)]

    def target_parts(self, begin: int, end: int) -> list[Flat]:
        """Return the elements [begin, end) of the results, as one array of each result."""
        return [entry.target[inner] for entry, inner, _ in self._cuts(begin, end)]

    def load_target(self) -> Flat:
        """Return this rank's arrays, scaled, as one array in which a reduction computes its partial results.

        If the batch has a single array of the right type, the returned array is the result itself.
        """
        work = self.arithmetic.working_dtype
        if len(self.entries) == 1:
            entry = self.entries[0]
            whole = entry.target if work == self.dtype else np.empty(self.count, work)
            if entry.source is not whole or self.arithmetic.prescale != 1.0:
                self.arithmetic.load(entry.source, whole)
            return whole
        whole = np.empty(self.count, work)
        for entry, inner, outer in self._cuts(0, self.count):
            self.arithmetic.load(entry.source[inner], whole[outer])
        return whole

    def store_target(self, whole: Flat) -> None:
        """Write the results from the array of `load_target`."""
        if len(self.entries) == 1 and whole is self.entries[0].target:
            return
        for entry, inner, outer in self._cuts(0, self.count):
            self.arithmetic.store(whole[outer], entry.target[inner])


def fuse(entries: Sequence[FusedArray], requests: Sequence[Sequence[Request]]) -> list[Batch]:
    """Return the batches of the requests; the batches are the same on every rank.

    Args: requests: for each entry, the requests of all ranks by rank.
    """
    groups: list[list[int]] = []
    open_groups: dict[tuple[Any, ...], tuple[list[int], int]] = {}
    for number, entry in enumerate(entries):
        request = entry.request
        key = (request.kind, request.dtype, request.argument, request.prescale, request.postscale)
        group, size = open_groups.get(key, ([], 0))
        can_join = request.kind in (CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST)
        if not group or not can_join or size + request.nbytes > FUSION_BYTES:
            group, size = [], 0
            groups.append(group)
        group.append(number)
        open_groups[key] = (group, size + request.nbytes)
    return [Batch([entries[number] for number in group], requests[group[0]]) for group in groups]

"""Fuses requests into batches, and reads, reduces and writes the arrays of a batch as a single array.

The cost of a small array is mostly the cost of its messages. Therefore requests with the same kind, type and reduction
form a batch of up to `FUSION_BYTES`. The other modules treat the arrays of a batch as a single concatenated array.

Sums, averages, minima and maxima of the arrays of several ranks are always computed in the same order. Sums of float16
are computed in float32 and rounded once. Averages of integers are rounded down, as in Horovod. No I/O.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_cluster.elastic.collectives.requests import CollectiveKind, Reduction, Request

FUSION_BYTES = 64 << 20
Flat = npt.NDArray[Any]
BLOCK_BYTES = 1 << 17  # bytes of the result per step, so that the result and its sources stay in the processor's cache
_FLOAT16 = np.dtype(np.float16)
_UFUNCS = {
    Reduction.SUM: np.add,
    Reduction.AVERAGE: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
}


def working_dtype(dtype: np.dtype[Any], reduction: int) -> np.dtype[Any]:
    """Return the type in which a reduction computes its partial results."""
    is_sum = reduction in (Reduction.SUM, Reduction.AVERAGE)
    return np.dtype(np.float32) if dtype == _FLOAT16 and is_sum else dtype


def combine(out: Flat, sources: Sequence[Flat], reduction: int, size: int) -> None:
    """Write the reduction of the sources, in their order, to `out`; `out` may be one of the first two sources.

    Shapes: all (n,). Args: size: divisor of an average.
    """
    ufunc = _UFUNCS[Reduction(reduction)]
    work = working_dtype(out.dtype, reduction)
    step = BLOCK_BYTES // work.itemsize
    for begin in range(0, len(out), step):
        parts = [source[begin : begin + step] for source in sources]
        target = out[begin : begin + step]
        total = target if work == out.dtype else np.empty(len(target), work)
        if len(parts) == 1:
            total[...] = parts[0]
        else:
            ufunc(parts[0], parts[1], out=total, dtype=work)
        for part in parts[2:]:
            ufunc(total, part, out=total, dtype=work)
        if reduction == Reduction.AVERAGE:
            divide(total, size)
        if total is not target:
            target[...] = total


def fold(out: Flat, first: Flat, second: Flat, reduction: int) -> None:
    """Write the reduction of two partial results to `out`; `out` may be `first` or `second`."""
    _UFUNCS[Reduction(reduction)](first, second, out=out)


def divide(total: Flat, size: int) -> None:
    """Turn a sum of `size` arrays into an average in place."""
    if total.dtype.kind == "f":
        np.divide(total, size, out=total)
    else:
        np.floor_divide(total, size, out=total)


class FusedArray(NamedTuple):
    """A request with its flat arrays. `source` contains the values of this rank, and `target` receives the result.

    `source` and `target` may be the same array.
    """

    request: Request
    source: Flat
    target: Flat


class Batch:
    """Requests that run together. `counts`: number of elements by rank; the numbers differ only in an all-gather."""

    def __init__(self, entries: Sequence[FusedArray], counts: Sequence[int]) -> None:
        first = entries[0].request
        self.kind, self.dtype, self.argument = first.kind, first.dtype, first.argument
        self.entries = entries
        self.counts = counts
        self._starts = list(itertools.accumulate((entry.request.elements for entry in entries), initial=0))
        self.count = self._starts.pop()

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
            combine(entry.target[inner], [source[outer] for source in sources], self.argument, size)

    def whole_target(self) -> Flat:
        """Return this rank's arrays as one array, in which a reduction computes its partial results.

        If the batch has a single array of the right type, the returned array is the result itself.
        """
        dtype = working_dtype(self.dtype, self.argument)
        if len(self.entries) == 1 and dtype == self.dtype:
            entry = self.entries[0]
            if entry.source is not entry.target:
                entry.target[...] = entry.source
            return entry.target
        whole: Flat = np.empty(self.count, dtype)
        self.read(0, self.count, whole)
        return whole


def fuse(entries: Sequence[FusedArray], requests: Sequence[Sequence[Request]]) -> list[Batch]:
    """Return the batches of the requests; the batches are the same on every rank.

    Args: requests: for each entry, the requests of all ranks by rank.
    """
    groups: list[list[int]] = []
    open_groups: dict[tuple[Any, ...], tuple[list[int], int]] = {}
    for number, entry in enumerate(entries):
        request = entry.request
        key = (request.kind, request.dtype, request.argument)
        group, size = open_groups.get(key, ([], 0))
        can_join = request.kind in (CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST)
        if not group or not can_join or size + request.nbytes > FUSION_BYTES:
            group, size = [], 0
            groups.append(group)
        group.append(number)
        open_groups[key] = (group, size + request.nbytes)
    return [
        Batch([entries[number] for number in group], [one.elements for one in requests[group[0]]]) for group in groups
    ]

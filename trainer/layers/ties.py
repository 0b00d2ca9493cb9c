"""Orders of numbers, the largest first, in which equal numbers stand as the C++ library of v0.10 leaves them.

v0.10 sorts pairs (number, position) by the number alone. The order of equal numbers therefore comes from the algorithms
of the GNU C++ library. They are repeated here, comparison by comparison: a stable order gives other paths of a beam
search, and other gradients of a ranking cost.

Source: bits/stl_algo.h and bits/stl_heap.h of the GNU C++ library.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Array, Ids

_SMALL = 16  # a shorter range is sorted by insertion, which keeps the order of equal numbers


class _Range:
    """Positions in the order of the sort so far, and the number at each position."""

    def __init__(self, keys: list[float]) -> None:
        self.at = list(range(len(keys)))
        self._keys = keys

    def is_before(self, one: int, other: int) -> bool:
        """Return whether the number at position `one` must come before the number at position `other`."""
        return self._keys[one] > self._keys[other]

    # ----- Heaps: the root has the smallest number -----

    def sift(self, begin: int, hole: int, length: int, value: int) -> None:
        """Put a value into a heap whose element `hole` is free: move the hole down to a leaf, and the value up."""
        at, top, child = self.at, hole, hole
        while child < (length - 1) // 2:
            child = 2 * (child + 1)
            if self.is_before(at[begin + child], at[begin + child - 1]):
                child -= 1
            at[begin + hole] = at[begin + child]
            hole = child
        if length % 2 == 0 and child == (length - 2) // 2:
            child = 2 * (child + 1)
            at[begin + hole] = at[begin + child - 1]
            hole = child - 1
        while hole > top and self.is_before(at[begin + (hole - 1) // 2], value):
            at[begin + hole] = at[begin + (hole - 1) // 2]
            hole = (hole - 1) // 2
        at[begin + hole] = value

    def heap_select(self, begin: int, middle: int, end: int) -> None:
        """Make a heap of the largest numbers in [begin, middle)."""
        at, length = self.at, middle - begin
        for parent in range((length - 2) // 2, -1, -1):
            self.sift(begin, parent, length, at[begin + parent])
        for place in range(middle, end):
            if self.is_before(at[place], at[begin]):
                value, at[place] = at[place], at[begin]
                self.sift(begin, 0, length, value)

    def partial_sort(self, begin: int, middle: int, end: int) -> None:
        """Sort the largest numbers into [begin, middle)."""
        if middle == begin:
            return
        self.heap_select(begin, middle, end)
        for last in range(middle - 1, begin, -1):
            value, self.at[last] = self.at[last], self.at[begin]
            self.sift(begin, 0, last - begin, value)

    # ----- Partitions -----

    def partition(self, begin: int, end: int) -> int:
        """Return the begin of the second part: no number of it comes before a number of the first part."""
        at = self.at
        self._move_median(begin, begin + 1, begin + (end - begin) // 2, end - 1)
        low, high = begin + 1, end
        while True:
            while self.is_before(at[low], at[begin]):
                low += 1
            high -= 1
            while self.is_before(at[begin], at[high]):
                high -= 1
            if low >= high:
                return low
            at[low], at[high] = at[high], at[low]
            low += 1

    def _move_median(self, target: int, a: int, b: int, c: int) -> None:
        at = self.at
        if self.is_before(at[a], at[b]):
            median = b if self.is_before(at[b], at[c]) else c if self.is_before(at[a], at[c]) else a
        else:
            median = a if self.is_before(at[a], at[c]) else c if self.is_before(at[b], at[c]) else b
        at[target], at[median] = at[median], at[target]

    def insertion_sort(self, begin: int, end: int) -> None:
        """Sort a range by insertion. The order of equal numbers does not change."""
        self.at[begin:end] = sorted(self.at[begin:end], key=lambda place: -self._keys[place])

    def split(self, begin: int, end: int, depth: int) -> None:
        """Divide a range into parts of at most _SMALL elements, no two of which must exchange elements."""
        while end - begin > _SMALL:
            if depth == 0:
                self.partial_sort(begin, end, end)
                return
            depth -= 1
            cut = self.partition(begin, end)
            self.split(cut, end, depth)
            end = cut

    def select(self, nth: int) -> None:
        """Move the number that belongs at position `nth` there, and larger numbers before it."""
        begin, end = 0, len(self.at)
        depth = _depth(end)
        while end - begin > 3:
            if depth == 0:
                self.heap_select(begin, nth + 1, end)
                self.at[begin], self.at[nth] = self.at[nth], self.at[begin]
                return
            depth -= 1
            cut = self.partition(begin, end)
            begin, end = (cut, end) if cut <= nth else (begin, cut)
        self.insertion_sort(begin, end)


def _depth(length: int) -> int:
    return 2 * (length.bit_length() - 1)


def sort_all(keys: list[float]) -> list[int]:
    """Return the positions of all numbers in the order of `std::sort`."""
    whole = _Range(keys)
    if len(keys) > _SMALL and len(set(keys)) < len(keys):
        whole.split(0, len(keys), _depth(len(keys)))
    whole.insertion_sort(0, len(keys))
    return whole.at


def sort_largest(keys: list[float], count: int) -> list[int]:
    """Return the positions in the order of `std::partial_sort`: first the `count` largest numbers, sorted."""
    whole = _Range(keys)
    whole.partial_sort(0, min(count, len(keys)), len(keys))
    return whole.at


def select_largest(keys: list[float], count: int) -> list[int]:
    """Return the positions of the `count` largest numbers in the order of `std::nth_element`."""
    whole = _Range(keys)
    if count < len(keys):
        whole.select(count)
    return whole.at[:count]


def mark_largest(values: Array, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the `count` numbers that `std::partial_sort` moves to the front."""
    mask = np.zeros(values.size, np.bool_)
    if 0 < count <= values.size:
        mask[:] = values >= np.partition(values, -count)[-count]
        if np.count_nonzero(mask) > count:  # equal numbers, of which only some are marked
            whole = _Range(values.tolist())
            whole.heap_select(0, count, values.size)
            mask[:] = False
            mask[whole.at[:count]] = True
    return mask


def find_best(p: Array, count: int) -> Ids:
    """Return the columns of the largest numbers of each row in the order of `std::partial_sort`.

    Shapes: p: (rows, columns) -> (rows, the smaller of count and columns).
    """
    count = min(count, p.shape[1])
    found = np.argpartition(-p, count - 1, axis=1)[:, :count] if count < p.shape[1] else np.argsort(-p, axis=1)
    best: Ids = np.take_along_axis(found, np.argsort(-np.take_along_axis(p, found, axis=1), axis=1), axis=1)
    values = np.take_along_axis(p, best, axis=1)
    # a row whose best numbers are distinct, and larger than all others, has only one order
    is_tied = (values[:, 1:] == values[:, :-1]).any(axis=1) | ((p >= values[:, -1:]).sum(axis=1) > count)
    for row in np.flatnonzero(is_tied):
        best[row] = sort_largest(p[row].tolist(), count)[:count]
    return best

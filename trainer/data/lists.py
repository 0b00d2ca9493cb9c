"""The lists of many samples as arrays, so that a slot is encoded without a step of Python for each sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.samples import list_places


@dataclass(frozen=True)
class Lists:
    """One list for each sample.

    Attributes: lengths: of the lists, int64 of shape (samples,).  items: those of all lists, one list after the other:
    an array, `Pairs`, or `Lists` for lists of lists.
    """

    lengths: npt.NDArray[np.int64]
    items: Any

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, places: slice) -> Lists:
        first, last, _ = places.indices(len(self.lengths))
        start = int(self.lengths[:first].sum())
        return Lists(self.lengths[first:last], self.items[start : start + int(self.lengths[first:last].sum())])

    def __iter__(self) -> Iterator[Any]:
        end = 0
        for length in self.lengths.tolist():
            end += length
            yield self.items[end - length : end]


@dataclass(frozen=True)
class Pairs:
    """The ids and values of sparse vectors: two arrays of the same length."""

    ids: npt.NDArray[Any]
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, places: slice) -> Pairs:
        return Pairs(self.ids[places], self.values[places])

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(self.ids, self.values, strict=True))


Encoded = tuple[npt.NDArray[Any], ...]
"""A slot of samples as `trainer.data.columns` encodes it: the lengths of each level of lists, and arrays of items."""


def slice_rows(encoded: Encoded, levels: int, first: int, last: int) -> Encoded:
    """Return the rows [first, last) of an encoded slot, without copying.

    Args: levels: the number of levels of lists.
    """
    lengths = []
    for part in encoded[:levels]:
        start = int(part[:first].sum())
        lengths.append(part[first:last])
        first, last = start, start + int(part[first:last].sum())
    return (*lengths, *(part[first:last] for part in encoded[levels:]))


def take_rows(encoded: Encoded, levels: int, rows: npt.NDArray[np.integer[Any]]) -> Encoded:
    """Return some rows of an encoded slot, in their order. Args: see `slice_rows`."""
    lengths = []
    for part in encoded[:levels]:
        starts = np.cumsum(part) - part
        taken = part.take(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(taken, out=offsets[1:])
        lengths.append(taken)
        rows = list_places(np.ascontiguousarray(starts.take(rows), np.int64), offsets)
    return (*lengths, *(part.take(rows, axis=0) for part in encoded[levels:]))

"""Some rows, or some sequences, of an argument of any kind. Pure."""

from __future__ import annotations

import numpy as np

from trainer.arguments import Argument, Array, Ids, Sparse
from trainer.layers.segments import join_ranges, offsets_of


def take_items(argument: Argument, starts: Ids | None, items: Ids) -> Argument:
    """Return some items of an argument: rows, or the stretches that `starts` tells, which become its sequences."""
    if starts is None:
        rows, result_starts = items, None
    else:
        lengths = np.diff(starts).take(items)
        rows, result_starts = join_ranges(starts.take(items), lengths), offsets_of(lengths)
    return Argument(
        value=_take_values(argument, rows),
        ids=None if argument.ids is None else argument.ids.take(rows),
        sparse=None if argument.sparse is None else _take_sparse(argument.sparse, rows),
        starts=result_starts,
    )


def _take_values(argument: Argument, rows: Ids) -> Array | None:
    if argument.distinct is not None and argument.index is not None:
        return argument.distinct.take(argument.index.take(rows), axis=0)
    return None if argument.value is None else argument.value.take(rows, axis=0)


def _take_sparse(sparse: Sparse, rows: Ids) -> Sparse:
    lengths = sparse.lengths.take(rows)
    places = join_ranges(sparse.offsets.take(rows), lengths)
    values = None if sparse.values is None else sparse.values.take(places)
    return Sparse(sparse.width, offsets_of(lengths), sparse.ids.take(places), values)


def cut_items(argument: Argument, begin: int, end: int) -> Argument:
    """Return consecutive items of an argument, its sequences or else its rows, without copying values."""
    starts, first, last = argument.starts, begin, end
    if starts is not None:
        first, last = int(starts[begin]), int(starts[end])
        starts = starts[begin : end + 1] - first
    sparse = argument.sparse
    return Argument(
        value=None if argument.value is None else argument.value[first:last],
        ids=None if argument.ids is None else argument.ids[first:last],
        sparse=None if sparse is None else _take_sparse(sparse, np.arange(first, last)),
        starts=starts,
    )

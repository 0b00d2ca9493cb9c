"""Some rows, or some sequences, of an argument of any kind. Pure."""

from __future__ import annotations

from collections.abc import Sequence

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


def find_rows(argument: Argument, begin: int, end: int) -> tuple[int, int]:
    """Return the first and the last row of consecutive items, the argument's sequences or else its rows."""
    if argument.starts is None:
        return begin, end
    return int(argument.starts[begin]), int(argument.starts[end])


def cut_items(argument: Argument, begin: int, end: int) -> Argument:
    """Return consecutive items of an argument, its sequences or else its rows, without copying values."""
    first, last = find_rows(argument, begin, end)
    sparse = argument.sparse
    return Argument(
        value=None if argument.value is None else argument.value[first:last],
        ids=None if argument.ids is None else argument.ids[first:last],
        sparse=None if sparse is None else _take_sparse(sparse, np.arange(first, last)),
        starts=None if argument.starts is None else argument.starts[begin : end + 1] - first,
    )


def join_items(parts: Sequence[Argument]) -> Argument:
    """Return the items of several arguments, at least one, which are all of the same kind, one after the other."""
    values = [one.value for one in parts if one.value is not None]
    ids = [one.ids for one in parts if one.ids is not None]
    return Argument(
        value=np.concatenate(values) if values else None,
        ids=np.concatenate(ids) if ids else None,
        starts=None if parts[0].starts is None else offsets_of(np.concatenate([one.lengths for one in parts])),
    )

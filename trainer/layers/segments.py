"""Rows that belong together: sums, maxima and index lists of consecutive stretches of rows. Pure.

Several stretches are given by one array of where each begins, and the end. A stretch may be empty.
"""

from __future__ import annotations

import numpy as np

from trainer.arguments import Array, Ids

_FEW = 4  # so many stretches per row of the longest one are taken stretch by stretch; more of them, step by step


def sum_stretches(rows: Array, starts: Ids) -> Array:
    """Return the sum of the rows of each stretch, zero of an empty one.

    Shapes: rows: (n, width), starts: (m + 1,) -> (m, width).
    """
    return _reduce(np.add, rows, starts)


def max_stretches(rows: Array, starts: Ids) -> Array:
    """Return each column's maximum in each stretch, zero in an empty one. Shapes: as of `sum_stretches`."""
    return _reduce(np.maximum, rows, starts)


def _reduce(operation: np.ufunc, rows: Array, starts: Ids) -> Array:
    """Reduce each stretch. Not by `reduceat`, which takes ten times as long along this axis."""
    lengths = np.diff(starts)
    if len(lengths) > _FEW * lengths.max(initial=0):
        return _reduce_by_steps(operation, rows, starts, lengths)
    result: Array = np.empty((len(lengths), rows.shape[1]), rows.dtype)
    bounds: list[int] = starts.tolist()
    for place, begin, end in zip(result, bounds, bounds[1:], strict=False):
        if begin < end:
            operation.reduce(rows[begin:end], axis=0, out=place)
        else:
            place.fill(0)
    return result


def _reduce_by_steps(operation: np.ufunc, rows: Array, starts: Ids, lengths: Ids) -> Array:
    """Reduce the first rows of all stretches, the second rows of those that have one, and so on."""
    result: Array = np.zeros((len(lengths), rows.shape[1]), rows.dtype)
    order = np.argsort(-lengths, kind="stable")
    firsts = starts[:-1][order]
    live = (len(lengths) - np.bincount(lengths).cumsum()).tolist() if len(lengths) else [0]
    ordered = rows.take(firsts[: live[0]], axis=0)
    for step, count in enumerate(live[1:], start=1):
        operation(ordered[:count], rows.take(firsts[:count] + step, axis=0), out=ordered[:count])
    result[order[: live[0]]] = ordered
    return result


def find_first_maxima(rows: Array, largest: Array, starts: Ids) -> Ids:
    """Return the row of the first maximum of each column in each stretch; -1 in an empty one.

    Shapes: rows: (n, width), largest: (m, width), of `max_stretches` -> (m, width).
    """
    width = rows.shape[1]
    lengths = np.diff(starts)
    hits = np.flatnonzero(rows == np.repeat(largest, lengths, axis=0))
    row = hits // max(width, 1)
    slots = np.repeat(np.arange(len(lengths)) * width, lengths)[row] + (hits - row * width)
    places: Ids = np.full(largest.shape, -1, np.int64)
    places.reshape(-1)[slots[::-1]] = row[::-1]  # the first of several comes last and stays
    return places


def join_ranges(begins: Ids, lengths: Ids) -> Ids:
    """Return begin, begin + 1, ... of each range, one range after the other."""
    ends = np.cumsum(lengths)
    result: Ids = np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return result


def offsets_of(lengths: Ids) -> Ids:
    """Return where stretches of these lengths begin, and the end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def scatter_rows(rows: Array, places: Ids, height: int) -> Array:
    """Return a matrix of zeros with rows[i] added to row places[i]; the places all differ."""
    result: Array = np.zeros((height, rows.shape[1]), rows.dtype)
    result[places] = rows
    return result

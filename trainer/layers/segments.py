"""Rows that belong together: index lists of consecutive stretches of rows. Pure.

Several stretches are given by one array of where each begins, and the end. A stretch may be empty.
"""

from __future__ import annotations

import numpy as np

from trainer.arguments import Array, Ids


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

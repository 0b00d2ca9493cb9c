"""Read, write and add rows of tables, and divide rows among services. A batch uses only a few rows of a table.

Row numbers are uint32, as in messages between trainers and servers. Without the compiled module numpy gives bit-equal
results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits, plain

Array = npt.NDArray[np.floating[Any]]
RowIds = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]
RowList = tuple[RowIds, Array]  # ascending numbers of rows, and these rows


def take_rows(table: Array, ids: RowIds, out: Array | None = None) -> Array:
    """Return table[ids], in `out` if it is given. Shapes: table: (any, width), ids: (n,); result: (n, width)."""
    if out is None:
        out = np.empty((len(ids), table.shape[1]), table.dtype)
    if compiled is not None and fits(table, out) and table.shape[1]:
        compiled.take_rows(out, table, ids, table.shape[1])
    else:
        np.take(table, ids, axis=0, out=out)
    return out


def put_rows(table: Array, ids: RowIds, rows: Array) -> None:
    """Set table[ids] = rows. Shapes: see `take_rows`."""
    if compiled is not None and fits(table, rows) and table.shape[1]:
        compiled.put_rows(table, rows, ids, table.shape[1])
    else:
        table[ids] = rows


def merge_rows(lists: Sequence[RowList]) -> RowList:
    """Return the union of the row numbers of all lists in ascending order, and the rows. Rows with equal numbers are
    added in the order of the lists.

    Args: lists: at least one. Shapes: ids of list k: (n_k,), ascending; its rows: (n_k, width).
    """
    if len(lists) == 1:
        return lists[0]
    width = lists[0][1].shape[1]
    if compiled is None or not width or not fits(*(rows for _, rows in lists)):
        return functools.reduce(plain.merge_rows, lists)
    room = sum(len(ids) for ids, _ in lists)
    merged, out = np.empty(room, np.uint32), np.empty((room, width), np.float32)
    count = compiled.merge_rows(merged, out, width, tuple(lists))
    return merged[:count], out[:count]


def descend_rows(table: Array, rate: float | np.floating[Any], lists: Sequence[RowList]) -> bool:
    """Subtract rate * s from each row of the table; s is the sum of all rows in the lists that have its number.

    Rows of several lists with the same number are first added as in `merge_rows`. If the function is not compiled or
    the arrays do not fit, the function returns False and changes nothing. Shapes: see `merge_rows`.
    """
    if compiled is None or not table.shape[1] or not fits(table, *(rows for _, rows in lists)):
        return False
    compiled.descend_rows(table, table.shape[1], rate, tuple(lists))
    return True


def is_rising(ids: RowIds, upper: int) -> bool:
    """Return whether each number is larger than the previous number, and all numbers are below `upper`."""
    if compiled is not None:
        return bool(compiled.is_rising(ids, upper))
    return not len(ids) or (int(ids[-1]) < upper and bool((ids[1:] > ids[:-1]).all()))


def deal_rows(ids: RowIds, places: Places) -> tuple[RowIds, RowIds, Places]:
    """Divide rows among len(places) owners: row r goes to owner places[r % owners].

    Returns: order: the positions in `ids`, grouped by owner; the positions of one owner keep their order. local:
        ids[order] // owners. starts: owner k has the elements [starts[k], starts[k + 1]) of `order` and of `local`.
    Shapes: ids: (n,); order, local: (n,); starts: (owners + 1,).
    """
    if compiled is None:
        return plain.deal_rows(ids, places)
    order, local = np.empty(len(ids), np.uint32), np.empty(len(ids), np.uint32)
    starts = np.empty(len(places) + 1, np.int64)
    compiled.deal_rows(order, local, starts, ids, places)
    return order, local, starts

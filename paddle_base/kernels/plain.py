"""The hot loops in numpy, which take every numeric type and do not need the compiled module.

Ragged row i of an array is the group of its rows [starts[i], starts[i + 1]).
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]

# If the number of ragged rows exceeds FEW times the number of rows of the longest one, all ragged rows are reduced
# together, step by step. Otherwise the ragged rows are reduced one after the other.
FEW = 4
SLID_ITEMS = 1 << 16  # number of items that `slide_spans` moves at once through a copy
NARROW = 8  # maximum columns for which numpy's one-dimensional add.at is faster than sorting the rows


def add_rows(target: Array, ids: Ids, rows: Array) -> None:
    """Add rows[i] to target[ids[i]] in place; the rows of a repeated id add up."""
    if not len(ids):
        return
    if rows.shape[1] <= NARROW:
        _add_columns(target, ids, rows)
        return
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    target[ordered[firsts]] += np.add.reduceat(rows.take(order, axis=0), firsts, axis=0)


def _add_columns(target: Array, ids: Ids, rows: Array) -> None:
    """Add the rows column by column. Two columns are viewed as one complex column, because this is twice as fast."""
    sources, targets = _pair_columns(rows), _pair_columns(target)
    for column in range(targets.shape[1]):
        np.add.at(targets[:, column], ids, sources[:, column])


def _pair_columns(matrix: Array) -> npt.NDArray[np.inexact[Any]]:
    """View every two columns as one complex column; return a matrix with an odd number of columns unchanged."""
    if matrix.shape[1] % 2:
        return matrix
    return matrix.view(np.complex64 if matrix.dtype == np.float32 else np.complex128)


def sum_rows(table: Array, ids: Ids, starts: Ids, values: Array | None) -> Array:
    """Return, for each i, the sum of values[k] * table[ids[k]] over all k in [starts[i], starts[i + 1])."""
    result: Array = np.zeros((len(starts) - 1, table.shape[1]), table.dtype)
    picked = table.take(ids, axis=0)
    if values is not None:
        picked *= values[:, None]
    # reduceat returns an element instead of zero for an empty ragged row, so empty ragged rows are omitted
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        result[filled] = np.add.reduceat(picked, starts[:-1][filled], axis=0)
    return result


def add_outer(target: Array, rows: Array, ids: Ids, starts: Ids, values: Array | None) -> None:
    """Add values[k] * rows[i] to target[ids[k]] in place for every k in [starts[i], starts[i + 1])."""
    pieces = rows.repeat(np.diff(starts), axis=0)
    if values is not None:
        pieces *= values[:, None]
    add_rows(target, ids, pieces)


def sum_windows(tables: Array, index: Ids, starts: Ids, first: int) -> Array:
    """Return for each row r of the sequences the sum over k of tables[index[r + first + k], k]."""
    result: Array = np.zeros((len(index), tables.shape[2]), tables.dtype)
    for k in range(tables.shape[1]):
        rows = _find_inside(starts, first + k)
        result[rows] += tables[:, k].take(index[rows + first + k], axis=0)
    return result


def add_windows(tables: Array, rows: Array, index: Ids, starts: Ids, first: int) -> None:
    """Add rows[r] to tables[index[r + first + k], k] in place."""
    for k in range(tables.shape[1]):
        inside = _find_inside(starts, first + k)
        part = np.zeros((len(tables), tables.shape[2]), tables.dtype)
        add_rows(part, index[inside + first + k], rows[inside])
        tables[:, k] += part


def _find_inside(starts: Ids, shift: int) -> Ids:
    """Return the rows for which the row at distance `shift` is in the same sequence."""
    rows = np.arange(starts[-1])
    lengths = np.diff(starts)
    places = rows + shift
    return rows[(places >= starts[:-1].repeat(lengths)) & (places < starts[1:].repeat(lengths))]


def pick_samples(pool: array[int], head: int, draws: Ids) -> None:
    """For each k, exchange pool[head + k] with pool[head + k + draws[k] mod n], where n = len(pool) - head - k."""
    heads = np.arange(head, head + len(draws))
    picks = heads + draws % (len(pool) - heads)
    for place, picked in enumerate(picks.tolist(), head):
        pool[place], pool[picked] = pool[picked], pool[place]


def find_spans(bounds: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """Return the start of each picked row's items, and the rows' offsets when their items are stored without gaps."""
    starts = bounds.take(rows)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(bounds.take(rows + 1) - starts, out=offsets[1:])
    return starts, offsets


def list_places(starts: Ids, offsets: Ids) -> Ids:
    """For every i, list the offsets[i + 1] - offsets[i] integers from starts[i] on. Return the joined lists."""
    places: Ids = np.repeat(starts - offsets[:-1], np.diff(offsets))
    places += np.arange(offsets[-1])
    return places


def slide_spans(store: npt.NDArray[Any], starts: Ids, offsets: Ids) -> None:
    """For every i, move the offsets[i + 1] - offsets[i] items from store[starts[i]] on to store[offsets[i]]."""
    first = 0
    while first < len(starts):  # no later span reads the places that these spans get
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + SLID_ITEMS, "right")) - 1)
        bounds = offsets[first : last + 1]
        store[bounds[0] : bounds[-1]] = store.take(list_places(starts[first:last], bounds - bounds[0]), axis=0)
        first = last


def pack_order(starts: Ids, *, is_reversed: bool) -> tuple[Ids, Ids, Ids, Ids, Ids]:
    """Return (order, begins, rows, places, previous); see `paddle_base.kernels.samples.pack_order`."""
    lengths = np.diff(starts)
    frames, steps = int(starts[-1]), int(lengths.max(initial=0))
    order = np.argsort(-lengths, kind="stable")
    live = len(lengths) - np.bincount(lengths, minlength=steps + 1)[:steps].cumsum()
    begins = np.concatenate([[0], live.cumsum()])
    step_of = np.repeat(np.arange(steps), live)
    place_in_step = np.arange(frames) - begins[step_of]
    sequence_of = order[place_in_step]
    rows = starts[1:][sequence_of] - 1 - step_of if is_reversed else starts[sequence_of] + step_of
    places = np.empty_like(rows)
    places[rows] = np.arange(frames)
    first = begins[min(1, steps)]
    return order, begins, rows, places, begins[step_of[first:] - 1] + place_in_step[first:]


def sum_stretches(rows: Array, starts: Ids) -> Array:
    """Return the sum of the rows of each ragged row, zero for an empty ragged row."""
    return _reduce(np.add, rows, starts)


def max_stretches(rows: Array, starts: Ids) -> tuple[Array, Ids]:
    """Return the maximum of each column in each ragged row, and the index in `rows` of the first row with this maximum.

    A ragged row is the group of the rows [starts[i], starts[i + 1]). For an empty group, the results are 0 and -1.
    """
    largest = _reduce(np.maximum, rows, starts)
    return largest, _find_first_maxima(rows, largest, starts)


def _reduce(operation: np.ufunc, rows: Array, starts: Ids) -> Array:
    """Reduce each ragged row. `reduceat` of numpy would take ten times as long along this axis."""
    lengths = np.diff(starts)
    if len(lengths) > FEW * lengths.max(initial=0):
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
    """Reduce all ragged rows together: step k adds row k of each ragged row that has more than k rows.

    If `operation` is the maximum, a step takes the maximum instead of adding.
    """
    result: Array = np.zeros((len(lengths), rows.shape[1]), rows.dtype)
    order = np.argsort(-lengths, kind="stable")
    firsts = starts[:-1][order]
    live = (len(lengths) - np.bincount(lengths).cumsum()).tolist() if len(lengths) else [0]
    ordered = rows.take(firsts[: live[0]], axis=0)
    for step, count in enumerate(live[1:], start=1):
        operation(ordered[:count], rows.take(firsts[:count] + step, axis=0), out=ordered[:count])
    result[order[: live[0]]] = ordered
    return result


def _find_first_maxima(rows: Array, largest: Array, starts: Ids) -> Ids:
    """Return, for each ragged row and column, the first row of `rows` with the maximum; -1 for an empty ragged row.

    Shapes: rows: (n, width); largest: (m, width), the maxima that `max_stretches` returns; result: (m, width).
    """
    width = rows.shape[1]
    lengths = np.diff(starts)
    hits = np.flatnonzero(rows == np.repeat(largest, lengths, axis=0))
    row = hits // max(width, 1)
    slots = np.repeat(np.arange(len(lengths)) * width, lengths)[row] + (hits - row * width)
    places: Ids = np.full(largest.shape, -1, np.int64)
    # the order is reversed: of several rows with the maximum, the first one is written last and remains
    places.reshape(-1)[slots[::-1]] = row[::-1]
    return places


def spread_maxima(gradient: Array, places: Ids, rows: int) -> Array:
    """Return a (rows, width) matrix with gradient[i, j] in row places[i, j] of column j. Entries of -1 are ignored."""
    width = gradient.shape[1]
    result: Array = np.zeros((rows, width), gradient.dtype)
    flat = places * width + np.arange(width)
    is_there = places >= 0
    if is_there.all():
        result.reshape(-1)[flat] = gradient
    else:
        result.reshape(-1)[flat[is_there]] = gradient[is_there]
    return result


def take_sum(out: Array, table: Array, ids: Ids, bias: Array | None, more: Array | None) -> None:
    """Set out[i] = table[ids[i]] + bias + more[i]. If `more` is shorter than `out`, the last rows get no more[i]."""
    np.take(table, ids, axis=0, out=out, mode="clip")  # the default mode would copy `out` twice
    if bias is not None:
        out += bias
    if more is not None:
        out[: len(more)] += more


def pick_columns(rows: Array, columns: Ids) -> Array:
    """Return rows[i, columns[i]] for every row i."""
    picked: Array = rows[np.arange(len(rows)), columns]
    return picked


def put_columns(values: Array, columns: Ids, width: int) -> Array:
    """Return a matrix with values[i] in column columns[i] of row i, and zero elsewhere."""
    result: Array = np.zeros((len(values), width), values.dtype)
    result[np.arange(len(values)), columns] = values
    return result


def find_largest(rows: Array) -> Ids:
    """Return the column of each row's first largest number."""
    columns: Ids = rows.argmax(axis=1)
    return columns


def all_inside(ids: Ids, upper: int) -> bool:
    """Return whether all ids are in [0, upper)."""
    as_unsigned = ids.view(f"u{ids.itemsize}")  # a negative id becomes a large number, so one comparison is enough
    return not ids.size or bool(as_unsigned.max() < upper)


def keep(draws: npt.NDArray[np.uint32], rate: float) -> npt.NDArray[np.bool_]:
    """Return a mask: True for each draw that is above the rate when it is scaled to a float32 from 0 to 1."""
    kept: npt.NDArray[np.bool_] = (draws * (1.0 / (1 << 31))).astype(np.float32) > np.float32(rate)
    return kept


# ----- Tables -----


def merge_rows(
    one: tuple[npt.NDArray[np.uint32], Array], more: tuple[npt.NDArray[np.uint32], Array]
) -> tuple[npt.NDArray[np.uint32], Array]:
    """Return the union of two lists: the row numbers in ascending order, and the rows.

    Rows with equal numbers are added. Shapes: see `tables.merge_rows`.
    """
    (ids, rows), (more_ids, more_rows) = one, more
    merged = np.union1d(ids, more_ids)
    out = np.zeros((len(merged), rows.shape[1]), rows.dtype)
    out[np.searchsorted(merged, ids)] = rows
    places = np.searchsorted(merged, more_ids)
    is_new = ~np.isin(more_ids, ids, assume_unique=True)
    out[places[is_new]] = more_rows[is_new]
    out[places[~is_new]] += more_rows[~is_new]
    return merged, out


def deal_rows(
    ids: npt.NDArray[np.uint32], places: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Divide rows among len(places) owners: row r goes to owner places[r % owners]. See `tables.deal_rows`."""
    owners = np.uint32(len(places))
    owner = places.take(ids % owners)
    order = np.argsort(owner, kind="stable").astype(np.uint32)
    starts = np.searchsorted(owner[order], np.arange(len(places) + 1)).astype(np.int64)
    return order, ids[order] // owners, starts


MIXING_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # as in digests.c


def fold_words(lanes: npt.NDArray[np.int64], words: npt.NDArray[np.int64]) -> None:
    """Mix rows of words into the lanes in place. Shapes: lanes: (n,), words: (rows * n,)."""
    mixed, upper = lanes.view(np.uint64), np.empty(len(lanes), np.uint64)
    for row in words.view(np.uint64).reshape(-1, len(lanes)):
        np.bitwise_xor(mixed, row, out=mixed)
        np.multiply(mixed, MIXING_FACTOR, out=mixed)
        np.right_shift(mixed, np.uint64(32), out=upper)
        np.bitwise_xor(mixed, upper, out=mixed)


_QUIET_NAN = np.uint32(0x7FC0)


def widen_bfloat16(values: npt.NDArray[np.uint16], out: Array) -> None:
    """Write bfloat16 numbers to `out` as float32 numbers. Shapes: both (n,)."""
    bits = out.view(np.uint32)
    bits[...] = values
    bits <<= np.uint32(16)


def round_to_bfloat16(values: Array, out: npt.NDArray[np.uint16]) -> None:
    """Write float32 numbers to `out` as bfloat16 numbers. Shapes: both (n,)."""
    bits = values.view(np.uint32)
    upper = bits >> np.uint32(16)
    rounded = upper & np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    is_nan = np.isnan(values)
    if is_nan.any():  # rounding could carry a NaN to an infinity, or over the sign
        np.copyto(rounded, upper & np.uint32(0x8000) | _QUIET_NAN, where=is_nan)
    out[...] = rounded

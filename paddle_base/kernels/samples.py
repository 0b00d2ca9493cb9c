"""The random numbers of PaddlePaddle v0.10, the dropout masks and samples of a batch that they select, and the order
in which recurrent layers process the frames of a batch.
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, plain

Ids = npt.NDArray[np.integer[Any]]
Draws = npt.NDArray[np.uint32]


def fill(out: Draws, state: int) -> int | None:
    """Fill an array with the random numbers that follow a state of `rand_r`; return the state after them all.

    If the function returns None, the caller must use numpy.
    """
    return None if compiled is None else int(compiled.draws(out, state))


def keep(draws: Draws, rate: float, dtype: npt.DTypeLike) -> npt.NDArray[np.floating[Any]]:
    """Return a mask: 1 for each draw that, scaled to a float32 from 0 to 1, exceeds the rate; 0 for any other draw."""
    if compiled is not None and dtype == np.float32:
        mask = np.empty(draws.shape, np.float32)
        compiled.keep(mask, draws, rate)
        return mask
    return plain.keep(draws, rate).astype(dtype)


def pick_samples(pool: array[int], head: int, draws: Draws) -> None:
    """For each k, exchange pool[head + k] with pool[head + k + draws[k] mod n], where n = len(pool) - head - k.

    Args: pool: an array of type code "q".  draws: at most one draw for each sample from pool[head] on.
    """
    if compiled is not None:
        compiled.pick_samples(pool, head, draws)
    else:
        plain.pick_samples(pool, head, draws)


def find_spans(bounds: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """Return (starts, offsets): picked row i has offsets[i + 1] - offsets[i] items, and the first is item starts[i].

    Args: bounds: row r of the store has the items [bounds[r], bounds[r + 1]).  rows: the picked rows.
    Shapes: bounds: (rows of the store + 1,), rows: (n,), both int64; results: (n,) and (n + 1,) from 0.
    """
    if compiled is None:
        return plain.find_spans(bounds, rows)
    starts, offsets = np.empty(len(rows), np.int64), np.empty(len(rows) + 1, np.int64)
    compiled.find_spans(starts, offsets, bounds, rows)
    return starts, offsets


def list_places(starts: Ids, offsets: Ids) -> Ids:
    """For every i, list the offsets[i + 1] - offsets[i] integers from starts[i] on. Return the joined lists.

    Shapes: starts: (rows,), offsets: (rows + 1,) from 0; result: (offsets[-1],), all int64.
    """
    if compiled is None:
        return plain.list_places(starts, offsets)
    places = np.empty(offsets[-1], np.int64)
    compiled.list_places(places, starts, offsets)
    return places


def join_spans(ids: npt.NDArray[np.int32], starts: Ids, offsets: Ids) -> Ids:
    """For every i, take offsets[i + 1] - offsets[i] ids from ids[starts[i]] on. Return all ids as one int64 array.

    Shapes: ids: (any,) int32; starts: (rows,), offsets: (rows + 1,) from 0, int64; result: (offsets[-1],).
    """
    if compiled is None:
        return ids.take(plain.list_places(starts, offsets)).astype(np.int64)
    joined = np.empty(offsets[-1], np.int64)
    compiled.join_spans(joined, ids, starts, offsets)
    return joined


def slide_spans(store: npt.NDArray[Any], starts: Ids, offsets: Ids) -> None:
    """For every i, move the offsets[i + 1] - offsets[i] items from store[starts[i]] on to store[offsets[i]], in place.

    Args: store: contiguous, with elements of 4 bytes.  starts: ascending; no span has an item of another one.
    Shapes: store: (any, ...); starts: (rows,), offsets: (rows + 1,) from 0, int64.
    """
    words = math.prod(store.shape[1:])
    if compiled is None:
        plain.slide_spans(store, starts, offsets)
    elif words:
        compiled.slide_spans(store.reshape(-1).view(np.uint32), starts, offsets, words)


def pack_order(starts: Ids, *, is_reversed: bool) -> tuple[Ids, Ids, Ids, Ids, Ids]:
    """Return the packed order of the frames of sequences: (order, begins, rows, places, previous).

    Step t has frame t of every sequence with more than t frames, and the longest sequence comes first. If
    `is_reversed`, step t has the frame that is t before the last one.

    Args: starts: the first frame of each sequence, and the number of frames.
    Shapes: starts: (sequences + 1,) from 0; order: (sequences,), the longest first; begins: (steps + 1,), the first
        packed row of each step; rows: (frames,), the frame of each packed row; places: (frames,), the packed row of
        each frame; previous: (frames after the first step,), the packed row of the frame before; all int64.
    """
    if compiled is None:
        return plain.pack_order(starts, is_reversed=is_reversed)
    starts = np.ascontiguousarray(starts, np.int64)
    frames = int(starts[-1])
    order, begins = np.empty(len(starts) - 1, np.int64), np.empty(frames + 1, np.int64)
    rows, places, previous = np.empty((3, frames), np.int64)
    steps = compiled.pack_order(order, begins, rows, places, previous, starts, is_reversed)
    begins = begins[: steps + 1]
    return order, begins, rows, places, previous[: frames - begins[min(1, steps)]]

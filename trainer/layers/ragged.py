"""Ragged arrays: the rows of a batch as sequences of different lengths, one after the other, without padding.

`starts` holds the first row of each sequence, and at the end the number of rows; a sequence may be empty. If the
sequences have sub-sequences, `sub_starts` describes the sub-sequences in the same form. Recurrent layers process the
rows in packed order: the first rows of all sequences, then the second rows of all sequences, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import take_sum
from paddle_base.kernels.samples import pack_order
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Flowing, Ids, Sparse, sum_repeated
from trainer.layers.workspace import Workspace

# ----- Ranges of rows -----


def join_ranges(begins: Ids, lengths: Ids) -> Ids:
    """Return begin, begin + 1, ... for each range, one range after the other.

    Shapes: begins: (ranges,), lengths: (ranges,) -> (sum of lengths,).
    """
    ends = np.cumsum(lengths)
    result: Ids = np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return result


def starts_of(lengths: Ids) -> Ids:
    """Return the first row of each sequence, and the number of rows, from the lengths of the sequences.

    Shapes: lengths: (sequences,) -> (sequences + 1,).
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def scatter_rows(rows: Array, places: Ids, height: int) -> Array:
    """Return a matrix in which row places[i] is rows[i] and all other rows are zero; the places are distinct.

    Shapes: rows: (rows, width), places: (rows,) -> (height, width).
    """
    result: Array = np.zeros((height, rows.shape[1]), rows.dtype)
    result[places] = rows
    return result


# ----- Some rows or sequences of an argument -----


def take_ragged(argument: Argument, starts: Ids | None, items: Ids) -> Argument:
    """Return some items of an argument: its rows, or the sequences that `starts` describes.

    Args: starts: the first row of each sequence; if it is None, the items are rows, and the result has no sequences.
    Shapes: starts: (sequences + 1,), items: (taken,), the positions of the items in the order of the result.
    """
    if starts is None:
        rows, result_starts = items, None
    else:
        lengths = np.diff(starts).take(items)
        rows, result_starts = join_ranges(starts.take(items), lengths), starts_of(lengths)
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
    return Sparse(sparse.width, starts_of(lengths), sparse.ids.take(places), values)


def find_rows(argument: Argument, begin: int, end: int) -> tuple[int, int]:
    """Return the first row of the items [begin, end), and the row after these items.

    An item is a sequence, or a row if the argument has no sequences.
    """
    if argument.starts is None:
        return begin, end
    return int(argument.starts[begin]), int(argument.starts[end])


def cut_ragged(argument: Argument, begin: int, end: int) -> Argument:
    """Return the items [begin, end) of an argument, without copying values.

    An item is a sequence, or a row if the argument has no sequences.
    """
    first, last = find_rows(argument, begin, end)
    sparse = argument.sparse
    return Argument(
        value=None if argument.value is None else argument.value[first:last],
        ids=None if argument.ids is None else argument.ids[first:last],
        sparse=None if sparse is None else _take_sparse(sparse, np.arange(first, last)),
        starts=None if argument.starts is None else argument.starts[begin : end + 1] - first,
    )


def join_ragged(parts: Sequence[Argument]) -> Argument:
    """Return the items of one or several arguments of the same kind, one argument after the other."""
    values = [one.value for one in parts if one.value is not None]
    ids = [one.ids for one in parts if one.ids is not None]
    return Argument(
        value=np.concatenate(values) if values else None,
        ids=np.concatenate(ids) if ids else None,
        starts=None if parts[0].starts is None else starts_of(np.concatenate([one.lengths for one in parts])),
    )


# ----- Packed order -----


class PackedOrder:
    """The frames of a batch in packed order: the first frames of all sequences, then the second frames, and so on.

    Step t of a recurrent layer processes frame t of all sequences with more than t frames. Sequences are ordered from
    the longest to the shortest, so the frames of step t are rows begins[t]:begins[t + 1] of a packed matrix. If h is
    the packed matrix of states, h[begins[t - 1]:][:live[t]] are the previous states of the sequences that have a step
    t.

    Args: starts: the first frame of each sequence, and the number of frames.
        is_reversed: whether the first step processes the last frame of each sequence.
    Shapes: order: (sequences,) the longest first; live: (steps,) the number of sequences with a frame at each step;
        begins: (steps + 1,), and `bounds` is the same as an array; rows: (frames,) the frame of each packed row;
        places: (frames,) the packed row of each frame; previous: (frames after the first step,) for each packed row
        from the second step on, the packed row of the previous frame.
    """

    def __init__(self, starts: Ids, is_reversed: bool) -> None:
        starts = starts if len(starts) else np.zeros(1, np.int64)
        self.order, self.bounds, self.rows, self.places, self.previous = pack_order(starts, is_reversed=is_reversed)
        self.frames = len(self.rows)
        self.begins: list[int] = self.bounds.tolist()
        self.live = [end - begin for begin, end in itertools.pairwise(self.begins)]
        self.steps = len(self.live)

    def span(self, step: int) -> slice:
        """Return the packed rows of a step."""
        return slice(self.begins[step], self.begins[step + 1])

    def span_before(self, step: int) -> slice:
        """Return the packed rows of the step before `step`, for the sequences that also have a row in `step`."""
        return slice(self.begins[step - 1], self.begins[step - 1] + self.live[step])


class PackedInput:
    """The dense input of a recurrent layer, in packed order; repeated rows are stored once.

    Shapes: matrix: (any, width); rows: (frames,), for each packed row the number of its row in the matrix.
    """

    def __init__(self, matrix: Array, index: Ids | None, packing: PackedOrder) -> None:
        self.matrix = matrix
        self.rows = packing.rows if index is None else index.take(packing.rows)
        self._packing = packing
        self._repeats = index is not None

    def copy_step(self, step: int, result: Array, bias: Array | None = None, more: Array | None = None) -> None:
        """Copy the rows of a step to `result`; add the bias to all rows, and `more` to the first len(more) rows."""
        take_sum(result, self.matrix, self.rows[self._packing.span(step)], bias, more)

    def gradient(self, packed: Array, kept: Workspace) -> Flowing:
        """Return the gradient of the input from the gradient in packed order; the result is an array of `kept`."""
        if self._repeats:
            return DistinctGradient(sum_repeated(packed, self.rows))
        result = kept.rows("gradient", len(packed), packed.shape[1], packed.dtype)
        take_rows(packed, self._packing.places, result)
        return result


def take_rows(matrix: Array, rows: Ids, result: Array) -> None:
    """Copy rows of a matrix: result[i] = matrix[rows[i]]."""
    np.take(matrix, rows, axis=0, out=result, mode="clip")  # the default mode of `take` would copy `result` twice

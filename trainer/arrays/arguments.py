"""The data that layers exchange: rows of numbers, of ids, or of sparse vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.rows import add_rows, all_inside, put_columns
from paddle_base.runtime.errors import BugError

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def find_bad_id(ids: Ids, upper: int) -> int | None:
    """Return the first id that is not in [0, upper), or None."""
    return None if all_inside(ids, upper) else int(ids[(ids < 0) | (ids >= upper)][0])


def is_finite(values: Array) -> bool:
    """Return whether all values are finite.

    Shapes: values: any. If the sum of the squares is finite, no second pass over the values is needed.
    """
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):  # the sum of squares may overflow although all values are finite
        return bool(np.isfinite(flat @ flat)) or bool(np.isfinite(flat).all())


@dataclass(frozen=True)
class Sparse:
    """Rows of a sparse matrix: the non-zero columns of row i are ids[offsets[i]:offsets[i + 1]].

    If a row contains a column several times, the values of this column are added.

    Shapes: offsets: (rows + 1,), ids: (nonzeros,), values: (nonzeros,) or None if every value is 1.
    """

    width: int
    offsets: Ids
    ids: Ids
    values: Array | None = None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Ids:
        """The number of nonzeros of each row."""
        lengths: Ids = np.diff(self.offsets)
        return lengths

    @cached_property
    def row_of(self) -> Ids:
        """The row of each nonzero."""
        return np.repeat(np.arange(self.rows), self.lengths)

    def cut(self, first: int, stop: int) -> Sparse:
        """Return the rows [first, stop), as views."""
        begin, end = self.offsets[first], self.offsets[stop]
        values = None if self.values is None else self.values[begin:end]
        return Sparse(self.width, self.offsets[first : stop + 1] - begin, self.ids[begin:end], values)

    def to_dense(self, dtype: npt.DTypeLike = np.float32) -> Array:
        """Return the matrix as a dense array; the values of repeated columns are added."""
        dense: Array = np.zeros((self.rows, self.width), dtype)
        np.add.at(dense, (self.row_of, self.ids), 1 if self.values is None else self.values)
        return dense


class Argument:
    """The output of a layer, or the part of a batch that belongs to one data layer.

    The content is dense values, ids, sparse rows, or dense values with ids.

    If the rows are frames of sequences, `starts` contains the first row of each sequence. There is no padding, and a
    sequence may be empty. If the sequences consist of sub-sequences, `sub_starts` contains the first row of each
    sub-sequence. `sub_starts` then includes every element of `starts`.

    A matrix with repeated rows, such as the embeddings of words, may be stored as two arrays: `distinct` has the
    distinct rows, and `index` has for every row the number of its distinct row. `value` is then computed on demand. An
    Argument never changes.

    Shapes: value: (rows, size) floating point; ids: (rows,) integers; sparse: rows of a sparse matrix.
        starts: (sequences + 1,), from 0 to rows; sub_starts: (sub-sequences + 1,), from 0 to rows.
        extras: further outputs by name, each (rows, size), for get_output layers.
        grids: (sequences, dimensions), the sizes of each sequence's grid, if the frames of each sequence form a grid.
        distinct: (distinct rows, size), index: (rows,) integers.
    """

    def __init__(
        self,
        value: Array | None = None,
        ids: Ids | None = None,
        sparse: Sparse | None = None,
        starts: Ids | None = None,
        sub_starts: Ids | None = None,
        extras: Mapping[str, Array] | None = None,
        *,
        distinct: Array | None = None,
        index: Ids | None = None,
        grids: Ids | None = None,
    ) -> None:
        if distinct is None or value is not None:
            self.value = value
        self.ids = ids
        self.sparse = sparse
        self.starts = starts
        self.sub_starts = sub_starts
        self.extras: Mapping[str, Array] = extras or {}
        self.distinct = distinct
        self.index = index
        self.grids = grids

    @cached_property
    def value(self) -> Array | None:
        """The dense values of all rows, also if only the distinct rows are stored; None without dense values."""
        return None if self.distinct is None or self.index is None else self.distinct.take(self.index, axis=0)

    @property
    def rows(self) -> int:
        """The number of rows (samples, or frames)."""
        if self.index is not None:
            return len(self.index)
        if self.value is not None:
            return len(self.value)
        if self.ids is not None:
            return len(self.ids)
        return self.sparse.rows if self.sparse is not None else 0

    @property
    def sequences(self) -> int:
        """The number of samples. A sample is a sequence, or a row if there are no sequences."""
        return self.rows if self.starts is None else len(self.starts) - 1

    @cached_property
    def lengths(self) -> Ids:
        """The number of frames of each sequence."""
        if self.starts is None:
            raise BugError("an argument without sequences has no sequence lengths")
        lengths: Ids = np.diff(self.starts)
        return lengths

    def with_value(self, value: Array | None) -> Argument:
        """Return an argument with the given values, and with the rows and sequences of this argument."""
        return Argument(value=value, starts=self.starts, sub_starts=self.sub_starts, grids=self.grids)

    def cut(self, first: int, stop: int) -> Argument:
        """Return the samples [first, stop) as views of the arrays."""
        begin, end, starts, sub_starts = first, stop, self.starts, self.sub_starts
        if starts is not None:
            if sub_starts is not None:
                inner = np.searchsorted(sub_starts, starts)
                inner[-1] = len(sub_starts) - 1  # the last sequence includes empty sub-sequences at the end
                sub_starts = sub_starts[inner[first] : inner[stop] + 1] - starts[first]
            begin, end = int(starts[first]), int(starts[stop])
            starts = starts[first : stop + 1] - begin
        value = vars(self).get("value")  # not computed on demand, because the parts compute their own rows
        return Argument(
            None if value is None else value[begin:end],
            None if self.ids is None else self.ids[begin:end],
            None if self.sparse is None else self.sparse.cut(begin, end),
            starts,
            sub_starts,
            distinct=self.distinct,
            index=None if self.index is None else self.index[begin:end],
            grids=None if self.grids is None else self.grids[first:stop],
        )

    def with_distinct(self, distinct: Array) -> Argument:
        """Return an argument with the given distinct rows, and with the `index` and sequences of this argument."""
        return Argument(
            distinct=distinct, index=self.index, starts=self.starts, sub_starts=self.sub_starts, grids=self.grids
        )


def join_arguments(parts: Sequence[Argument]) -> Argument:
    """Return the samples of all parts in order, in new arrays. Sparse rows become dense."""

    def join(arrays: Sequence[Any]) -> Any:
        return None if not arrays or any(one is None for one in arrays) else np.concatenate(arrays)

    def join_starts(starts: Sequence[Ids | None]) -> Ids | None:
        firsts = np.cumsum([0, *(part.rows for part in parts)])
        whole = join([None if one is None else one[:-1] + first for one, first in zip(starts, firsts, strict=False)])
        return None if whole is None else np.append(whole, firsts[-1])

    values = [part.value if part.sparse is None else part.sparse.to_dense() for part in parts]
    return Argument(
        join(values),
        join([part.ids for part in parts]),
        starts=join_starts([part.starts for part in parts]),
        sub_starts=join_starts([part.sub_starts for part in parts]),
        extras={name: join([part.extras.get(name) for part in parts]) for name in (parts[0].extras if parts else ())},
        grids=join([part.grids for part in parts]),
    )


@dataclass(frozen=True)
class DistinctGradient:
    """The gradient of an argument's distinct rows.

    Row i of `rows` is the sum of the gradients of all rows of the argument that repeat the distinct row i.
    """

    rows: Array


@dataclass(frozen=True)
class PickedGradient:
    """A gradient with at most one non-zero number in each row: row i has values[i] in column columns[i].

    Shapes: columns, values: (rows,).
    """

    columns: Ids
    values: Array
    width: int

    def to_dense(self) -> Array:
        """Return the matrix, (rows, width)."""
        return put_columns(self.values, self.columns, self.width)


Flowing = Array | DistinctGradient | PickedGradient | None  # the gradient that a layer returns for an input


# The distinct ids of a batch are found by sorting the ids, or in a table with one flag for each possible id. Sorting is
# faster if the number of possible ids is at least SCARCE times the number of ids in the batch.
SCARCE = 8


def list_distinct(ids: Ids, upper: int) -> Ids:
    """Return the distinct ids in ascending order; ids are in [0, upper)."""
    if upper < SCARCE * ids.size:
        occurs = np.zeros(upper, np.bool_)
        occurs[ids] = True
        return np.flatnonzero(occurs)
    ordered = np.sort(ids)
    return ordered[_mark_first(ordered)]


def _mark_first(ordered: Ids) -> npt.NDArray[np.bool_]:
    """Return whether each of some ordered ids is the first of its equals."""
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def find_distinct(ids: Ids, upper: int) -> tuple[Ids, Ids]:
    """Return the distinct ids in ascending order, and the index of each id in them; ids are in [0, upper)."""
    if upper >= SCARCE * ids.size:
        # the order also gives the index of each id; a search of each id in the distinct ids takes two to five times as
        # long
        order = ids.argsort()
        ordered = ids.take(order)
        is_first = _mark_first(ordered)
        index = np.empty(ids.size, np.int64)
        index[order] = np.cumsum(is_first, dtype=np.int64) - 1
        return ordered[is_first], index
    occurs = np.zeros(upper, np.bool_)
    occurs[ids] = True
    places = np.cumsum(occurs, dtype=np.int64)
    places -= 1
    return np.flatnonzero(occurs), places.take(ids)


def sum_repeated(gradient: Array, index: Ids) -> Array:
    """Sum the gradient rows of the same distinct row. Row i of `gradient` belongs to the distinct row index[i]."""
    result: Array = np.zeros((int(index.max(initial=-1)) + 1, gradient.shape[1]), gradient.dtype)
    add_rows(result, index, gradient)
    return result

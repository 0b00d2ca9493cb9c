"""What flows between layers: rows of numbers, of ids, or of sparse vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pserver.errors import BugError

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


def find_bad_id(ids: Ids, upper: int) -> int | None:
    """Return the first id that is not in [0, upper), or None."""
    as_unsigned = ids.view(f"u{ids.itemsize}")  # a negative id is a large one then: one look instead of two
    if not ids.size or as_unsigned.max() < upper:
        return None
    return int(ids[(as_unsigned >= upper).argmax()])


@dataclass(frozen=True)
class Sparse:
    """Rows of a sparse matrix: row i has the columns ids[offsets[i]:offsets[i + 1]].

    A column may be given repeatedly in a row; it then counts repeatedly.

    Shapes: offsets: (rows + 1,), ids: (nonzeros,), values: (nonzeros,) or None where every value is 1.
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

    def to_dense(self, dtype: npt.DTypeLike = np.float32) -> Array:
        """Return the matrix with its zeros; repeated columns are added."""
        dense: Array = np.zeros((self.rows, self.width), dtype)
        np.add.at(dense, (self.row_of, self.ids), 1 if self.values is None else self.values)
        return dense


@dataclass(frozen=True)
class Argument:
    """The output of a layer (or one slot of a batch): one of its three kinds, or a matrix with ids beside it.

    Where the rows are frames of sequences, `starts` says where each sequence begins; there is no padding, and a
    sequence may be empty. Sequences of sequences have `sub_starts` too, in which every one of `starts` occurs.

    Shapes: value: (rows, size) floating point; ids: (rows,) integers; sparse: rows of a sparse matrix.
        starts: (sequences + 1,), from 0 to rows; sub_starts: (sub-sequences + 1,), from 0 to rows.
        extras: further outputs by name, each (rows, size): what a get_output layer asks for.
    """

    value: Array | None = None
    ids: Ids | None = None
    sparse: Sparse | None = None
    starts: Ids | None = None
    sub_starts: Ids | None = None
    extras: Mapping[str, Array] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows (samples, or frames)."""
        if self.value is not None:
            return len(self.value)
        if self.ids is not None:
            return len(self.ids)
        return self.sparse.rows if self.sparse is not None else 0

    @property
    def sequences(self) -> int:
        """The number of samples: of sequences, or of rows where there are none."""
        return self.rows if self.starts is None else len(self.starts) - 1

    @cached_property
    def lengths(self) -> Ids:
        """The number of frames of each sequence."""
        if self.starts is None:
            raise BugError("an argument without sequences has no lengths")
        lengths: Ids = np.diff(self.starts)
        return lengths

    def with_value(self, value: Array) -> Argument:
        """Return an argument of the same rows and sequences with these values."""
        return Argument(value=value, starts=self.starts, sub_starts=self.sub_starts)

"""Store samples as columns. A column consists of a few arrays with the values of one slot in all samples.

A batch is taken from the columns without a Python loop. A slot is the part of a sample that one data layer takes.
`encode` runs in the thread that reads the provider. All other functions run in the main thread.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.samples import join_spans, list_places
from trainer.arrays.arguments import Argument, Ids, Sparse
from trainer.arrays.growing import Growing, Spans
from trainer.data.checks import SampleError, check_finite, check_ids, find_missing, shorten
from trainer.data.input_types import DataType, InputType, Slot
from trainer.data.lists import Lists, Pairs

# errors that numpy and this module raise if a value does not have the slot's type
ENCODING_ERRORS = (TypeError, ValueError, ArithmeticError)


class SlotColumn(Protocol):
    """One slot of all samples."""

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return the values that some samples have in this slot, as arrays.

        Raises: SampleError, TypeError, ValueError: a value does not have the slot's type.
        """

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append the result of `encode`."""

    def gather(self, rows: Ids) -> Argument:
        """Return the values of the given samples."""

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the values in the result of `encode` as a batch, without storing them."""

    def keep(self, rows: Ids) -> None:
        """Remove all samples except rows[0], rows[1], ..., which get the positions 0, 1, ...

        Args: rows: each is at least its new position. The rows ascend, unless the column is a FixedColumn.
        """

    @property
    def nbytes(self) -> int:
        """The bytes of the samples."""


class FixedColumn:
    """A column of samples that all have the same size: an array with one row for each sample."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._rows = Growing(shape, dtype)

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append rows."""
        self._rows.extend(encoded[0])

    def keep(self, rows: Ids) -> None:
        """Remove all samples except the given samples."""
        self._rows.keep(rows)

    def keep_spans(self, starts: Ids, offsets: Ids) -> None:
        """Remove all samples except some spans of them (see `Growing.keep_spans`)."""
        self._rows.keep_spans(starts, offsets)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows."""
        return self._rows.nbytes


class DenseColumn(FixedColumn):
    """A matrix with one row for each sample."""

    def __init__(self, dim: int) -> None:
        super().__init__((dim,), np.float32)
        self._dim = dim

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (matrix,)."""
        if not len(values):
            return (np.empty((0, self._dim), np.float32),)
        try:
            matrix = np.asarray(values)
        except ValueError:  # the rows have different shapes; for example, some are flat lists and some are images
            matrix = np.asarray([np.asarray(value).reshape(-1) for value in values])
        if matrix.dtype.kind not in "fiub":
            raise SampleError(f"{shorten(values[0])} is no list of numbers")
        if matrix.size != len(values) * self._dim:
            raise SampleError(f"it has {matrix.size // len(values)} numbers instead of {self._dim}")
        return (check_finite(matrix.reshape(len(values), self._dim).astype(np.float32, copy=False)),)

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the rows."""
        return Argument(value=encoded[0])

    def gather(self, rows: Ids) -> Argument:
        """Return the rows."""
        return Argument(value=self._rows.view().take(rows, axis=0))


class IdColumn(FixedColumn):
    """One id for each sample; -1 (no id) is allowed."""

    def __init__(self, dim: int) -> None:
        super().__init__((), np.int32)
        self._dim = dim

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (ids,)."""
        if not len(values):
            return (np.empty(0, np.int32),)
        ids = np.asarray(values)
        if ids.shape != (len(values),) or ids.dtype.kind not in "iub":
            raise SampleError(f"{shorten(values[0])} is no id")
        return (check_ids(ids, self._dim, lowest=-1),)

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the ids."""
        return Argument(ids=encoded[0])

    def gather(self, rows: Ids) -> Argument:
        """Return the ids."""
        return Argument(ids=self._rows.view().take(rows))

    def join(self, starts: Ids, offsets: Ids) -> Ids:
        """Return the joined ids of several spans (see `paddle_base.kernels.samples.join_spans`)."""
        return join_spans(self._rows.view(), starts, offsets)


class SparseColumn:
    """A sparse vector for each sample: a list of ids, or of ids with values."""

    def __init__(self, dim: int, with_values: bool) -> None:
        self._dim = dim
        self._spans = Spans()
        self._ids = Growing((), np.int32)
        self._values = Growing((), np.float32) if with_values else None

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (lengths, ids) or (lengths, ids, values)."""
        lengths, items = _join(values)
        if self._values is None:
            return lengths, self._encode_ids(items)
        ids: Any
        numbers: Any
        if isinstance(items, Pairs):
            ids, numbers = items.ids, items.values
        else:
            ids, numbers = zip(*items, strict=True) if len(items) else ((), ())
        floats = np.asarray(numbers, np.float32)
        if floats.shape != (len(items),):
            raise SampleError(f"{shorten(values[0])} is no list of pairs (id, value)")
        return lengths, self._encode_ids(ids), check_finite(floats)

    def _encode_ids(self, items: Sequence[Any]) -> npt.NDArray[Any]:
        if not len(items):
            return np.empty(0, np.int32)
        ids = np.asarray(items)
        if ids.ndim != 1 or ids.dtype.kind not in "iub":
            raise SampleError(f"{shorten(items)} are no ids")
        return check_ids(ids, self._dim, lowest=0)

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the rows as a sparse matrix."""
        lengths, ids, *values = encoded
        return Argument(sparse=Sparse(self._dim, _starts(lengths), ids.astype(np.int64), *values))

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append rows."""
        self._spans.extend(encoded[0])
        self._ids.extend(encoded[1])
        if self._values is not None:
            self._values.extend(encoded[2])

    def gather(self, rows: Ids) -> Argument:
        """Return the rows as a sparse matrix."""
        starts, offsets = self._spans.find(rows)
        values = None if self._values is None else self._values.view().take(list_places(starts, offsets))
        return Argument(sparse=Sparse(self._dim, offsets, join_spans(self._ids.view(), starts, offsets), values))

    def keep(self, rows: Ids) -> None:
        """Remove all rows except the given rows."""
        starts, offsets = self._spans.find(rows)
        self._spans.replace(offsets)
        self._ids.keep_spans(starts, offsets)
        if self._values is not None:
            self._values.keep_spans(starts, offsets)

    @property
    def nbytes(self) -> int:
        """The bytes of the ids, the values and their positions."""
        return self._spans.nbytes + self._ids.nbytes + (0 if self._values is None else self._values.nbytes)


class SequenceColumn:
    """A list of items for each sample. Another column stores the items of all samples.

    Items that are sequences become sub-sequences.
    """

    def __init__(self, items: SlotColumn) -> None:
        self._items = items
        self._spans = Spans()

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return the lengths of the sequences, and then the arrays of the encoded items."""
        lengths, items = _join(values)
        try:
            return lengths, *self._items.encode(items)
        except ENCODING_ERRORS:
            if len(values) == 1:
                self._name_wrong_item(items)
            raise

    def _name_wrong_item(self, items: Sequence[Any]) -> None:
        """Raise SampleError with the position of the first item that cannot be encoded, if there is such an item."""
        for place, item in enumerate(items):
            try:
                self._items.encode([item])
            except ENCODING_ERRORS as error:
                raise SampleError(f"item {place}: {error}") from error

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the items, with the starts of the sequences (and sub-sequences)."""
        return _in_sequences(self._items.convert(encoded[1:]), _starts(encoded[0]))

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append sequences."""
        self._spans.extend(encoded[0])
        self._items.extend(encoded[1:])

    def gather(self, rows: Ids) -> Argument:
        """Return the items, with the starts of the sequences (and sub-sequences)."""
        begins, starts = self._spans.find(rows)
        if isinstance(self._items, IdColumn):
            return Argument(ids=self._items.join(begins, starts), starts=starts)
        return _in_sequences(self._items.gather(list_places(begins, starts)), starts)

    def keep(self, rows: Ids) -> None:
        """Remove all sequences except the given sequences."""
        begins, offsets = self._spans.find(rows)
        self._spans.replace(offsets)
        if isinstance(self._items, FixedColumn):
            self._items.keep_spans(begins, offsets)
        else:
            self._items.keep(list_places(begins, offsets))

    @property
    def nbytes(self) -> int:
        """The bytes of the items and their positions."""
        return self._spans.nbytes + self._items.nbytes


class GridColumn(SequenceColumn):
    """For each sample, a sequence whose items form a grid. A slot is the pair (extents of the grid, items)."""

    def __init__(self, items: SlotColumn, dimensions: int) -> None:
        super().__init__(items)
        self._dimensions = dimensions
        self._extents = Growing((dimensions,), np.int64)

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return the extents of the grids, the lengths of the sequences, and then the arrays of the encoded items."""
        for extents, items in values:
            if len(extents) != self._dimensions or math.prod(extents) != len(items):
                raise SampleError(
                    f"{len(items)} items do not fit a grid of {list(extents)} in {self._dimensions} dimensions"
                )
        grids = np.array([value[0] for value in values], np.int64).reshape(len(values), self._dimensions)
        return grids, *super().encode([value[1] for value in values])

    def convert(self, encoded: tuple[npt.NDArray[Any], ...]) -> Argument:
        """Return the items, with the starts of the sequences and the extents of each sequence's grid."""
        one = super().convert(encoded[1:])
        return Argument(one.value, one.ids, one.sparse, one.starts, grids=encoded[0])

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append sequences."""
        self._extents.extend(encoded[0])
        super().extend(encoded[1:])

    def gather(self, rows: Ids) -> Argument:
        """Return the items, with the starts of the sequences and the extents of each sequence's grid."""
        one, grids = super().gather(rows), self._extents.view().take(rows, axis=0)
        return Argument(one.value, one.ids, one.sparse, one.starts, grids=grids)

    def keep(self, rows: Ids) -> None:
        """Remove all sequences except the given sequences."""
        super().keep(rows)
        self._extents.keep(rows)

    @property
    def nbytes(self) -> int:
        """The bytes of the extents, the items and their positions."""
        return self._extents.nbytes + super().nbytes


def _starts(lengths: Ids) -> Ids:
    """Return the first item of each list, and the number of items."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _in_sequences(items: Argument, starts: Ids) -> Argument:
    """Return items as sequences; items that are sequences become sub-sequences. Their ids are of type int64."""
    ids = None if items.ids is None else items.ids.astype(np.int64, copy=False)
    if items.starts is None:
        return Argument(items.value, ids, items.sparse, starts)
    return Argument(items.value, ids, items.sparse, items.starts.take(starts), items.starts)


def _join(values: Sequence[Any] | Lists) -> tuple[Ids, Any]:
    """Return the lengths of the lists, and all items, list by list. If all lists are arrays, the items are an array.

    Raises: SampleError: an item is not a list.
    """
    if isinstance(values, Lists):
        return values.lengths, values.items
    try:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
    except TypeError as error:
        wrong = next(value for value in values if not hasattr(value, "__len__") or np.ndim(value) == 0)
        raise SampleError(f"{shorten(wrong)} is no list") from error
    if len(values) and all(isinstance(value, np.ndarray) for value in values):
        joined: Sequence[Any] = np.concatenate(values)  # type: ignore[assignment]  # an array has a length and indices
        return lengths, joined
    return lengths, list(itertools.chain.from_iterable(values))


def make_column(kind: InputType) -> SlotColumn:
    """Return an empty column for slots of this type."""
    column: SlotColumn
    if kind.type == DataType.Dense:
        column = DenseColumn(kind.dim)
    elif kind.type == DataType.Index:
        column = IdColumn(kind.dim)
    else:
        column = SparseColumn(kind.dim, with_values=kind.type == DataType.SparseValue)
    if kind.grid:
        return GridColumn(column, kind.grid)
    for _ in range(kind.seq_type):  # SequenceType is the number of levels of lists
        column = SequenceColumn(column)
    return column


class ColumnSet:
    """The columns of all slots, in the order of the inputs' names.

    Attributes: rows: the number of samples. is_fixed: whether all samples have the same size.

    Args: what: the word for a slot in messages; programs of paddle.v2 have data layers.
    """

    def __init__(self, slots: Sequence[Slot], what: str = "slot") -> None:
        self.names = [slot.name for slot in slots]
        self._slots, self._what = slots, what
        self._columns = [make_column(slot.stored) for slot in slots]
        self.is_fixed = all(isinstance(column, FixedColumn) for column in self._columns)
        self.rows = 0

    def encode(self, samples: Sequence[Any]) -> list[tuple[npt.NDArray[Any], ...]]:
        """Return samples (lists in slot order) as arrays, for `extend`.

        Raises: SampleError: a sample is wrong. The text names the slot; `row` is the sample's position in `samples`.
        """
        for number, sample in enumerate(samples):
            if not hasattr(sample, "__len__") or len(sample) != len(self._columns):
                raise SampleError(
                    f"{shorten(sample)} is no list of {len(self._columns)} slots ({', '.join(self.names)})", number
                )
        return self.encode_slots(list(zip(*samples, strict=True)), samples)

    def encode_slots(
        self, slots: Sequence[Sequence[Any]], samples: Sequence[Any] | None = None
    ) -> list[tuple[npt.NDArray[Any], ...]]:
        """Return samples as arrays, as `encode` does, from the values of each slot.

        Args: samples: the samples, of which some may lack a slot (`PartialSample`); None: none does.
        """
        for position, values in enumerate(slots):
            if self._slots[position].nests(values):
                self._columns[position] = make_column(self._slots[position].stored)
        return [self._encode_slot(position, values, samples) for position, values in enumerate(slots)]

    def _encode_slot(
        self, position: int, values: Sequence[Any], samples: Sequence[Any] | None
    ) -> tuple[npt.NDArray[Any], ...]:
        column, slot = self._columns[position], self._slots[position]
        try:
            with np.errstate(over="raise"):
                encoded = column.encode(values)
        except ENCODING_ERRORS as error:
            what, wanted = f"{self._what} {slot.name} ({slot.kind})", f"it must be {slot.expectation()}"
            for number, value in enumerate(values):
                try:
                    with np.errstate(over="raise"):
                        column.encode([value])
                except ENCODING_ERRORS as cause:
                    missing = "" if samples is None else find_missing(samples[number], position)
                    raise SampleError(missing or f"{what}: {cause}; {wanted}", number, position) from cause
            raise SampleError(f"{what}: {error}; {wanted}", None, position) from error
        slot.watch(encoded)
        return encoded

    def end(self) -> None:
        """Judge the first samples, of which a short pass has only few."""
        for slot in self._slots:
            if slot.content is not None:
                slot.content.end()

    def extend(self, encoded: Sequence[tuple[npt.NDArray[Any], ...]], rows: int) -> None:
        """Append the result of `encode` for `rows` samples."""
        for column, part in zip(self._columns, encoded, strict=True):
            column.extend(part)
        self.rows += rows

    def convert(self, encoded: Sequence[tuple[npt.NDArray[Any], ...]]) -> dict[str, Argument]:
        """Return the result of `encode` as a batch, without storing it."""
        return {
            name: column.convert(part) for name, column, part in zip(self.names, self._columns, encoded, strict=True)
        }

    def gather(self, rows: Ids) -> dict[str, Argument]:
        """Return a batch of these samples."""
        return {name: column.gather(rows) for name, column in zip(self.names, self._columns, strict=True)}

    def keep(self, rows: Ids) -> Ids:
        """Remove all samples except the given samples, in place. Return the row number of each of them.

        Args: rows: different row numbers. They become 0, 1, ..., but in another order.
        """
        is_kept = np.zeros(self.rows, np.bool_)
        is_kept[rows] = True
        packed = np.flatnonzero(is_kept)
        if self.is_fixed:  # only the last rows move, and fill the gaps
            gaps = np.flatnonzero(~is_kept[: len(rows)])
            filling = packed[len(rows) - len(gaps) :]
            packed = np.arange(len(rows))
            packed[gaps] = filling
        for column in self._columns:
            column.keep(packed)
        places = np.empty(self.rows, np.int64)
        places[packed] = np.arange(len(packed))
        self.rows = len(packed)
        return places[rows]

    @property
    def nbytes(self) -> int:
        """The bytes of all samples."""
        return sum(column.nbytes for column in self._columns)

"""Samples as columns: each slot of all samples in a few arrays, so that a batch is gathered without a loop in Python.

`encode` runs in the thread that reads the provider, everything else in the main thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pserver.errors import ConfigError
from trainer.arguments import Argument, Array, Ids, Sparse
from trainer.data.checks import SampleError, find_missing, shorten
from trainer.data.input_types import DataType, InputType, SequenceType

NO_ID = 0xFFFFFFFF  # how old providers spell the id -1


class Growing:
    """A numpy array that grows at its end in amortised constant time."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._store: npt.NDArray[Any] = np.empty((0, *shape), dtype)
        self._length = 0

    def view(self) -> npt.NDArray[Any]:
        """Return what is in it; valid until the next change."""
        return self._store[: self._length]

    def extend(self, items: npt.NDArray[Any]) -> None:
        """Append items."""
        needed = self._length + len(items)
        if needed > len(self._store):
            grown = np.empty((max(needed, 2 * len(self._store)), *self._store.shape[1:]), self._store.dtype)
            grown[: self._length] = self.view()
            self._store = grown
        self._store[self._length : needed] = items
        self._length = needed

    def replace(self, items: npt.NDArray[Any]) -> None:
        """Hold these items instead."""
        self._store, self._length = items, len(items)


class Column(Protocol):
    """One slot of all samples."""

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return the slot's values of some samples as arrays.

        Raises: SampleError, TypeError, ValueError: if one does not have the slot's type.
        """

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append what `encode` returned."""

    def gather(self, rows: Ids) -> Argument:
        """Return these samples' values."""

    def keep(self, rows: Ids) -> None:
        """Forget all samples but these, which get the positions 0, 1, ..."""


class DenseColumn:
    """A matrix with a row per sample."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._rows = Growing((dim,), np.float32)

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (matrix,)."""
        try:
            matrix = np.asarray(values)
        except ValueError:  # rows of several shapes, for example flat lists and images
            matrix = np.asarray([np.asarray(value).reshape(-1) for value in values])
        if matrix.dtype.kind not in "fiub":
            raise SampleError(f"{shorten(values[0])} is no list of numbers")
        if matrix.size != len(values) * self._dim:
            raise SampleError(f"{matrix.size // max(1, len(values))} numbers, not {self._dim}")
        return (matrix.reshape(len(values), self._dim).astype(np.float32),)

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append rows."""
        self._rows.extend(encoded[0])

    def gather(self, rows: Ids) -> Argument:
        """Return the rows."""
        return Argument(value=self._rows.view().take(rows, axis=0))

    def keep(self, rows: Ids) -> None:
        """Forget the other rows."""
        self._rows.replace(self._rows.view().take(rows, axis=0))


class IdColumn:
    """An id per sample; -1 (no id) is allowed."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._ids = Growing((), np.int32)

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (ids,)."""
        ids = np.asarray(values)
        if ids.shape != (len(values),) or ids.dtype.kind not in "iub":
            raise SampleError(f"{shorten(values[0])} is no id")
        return (_in_range(ids, self._dim, lowest=-1),)

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append ids."""
        self._ids.extend(encoded[0])

    def gather(self, rows: Ids) -> Argument:
        """Return the ids."""
        return Argument(ids=self._ids.view().take(rows))

    def keep(self, rows: Ids) -> None:
        """Forget the other ids."""
        self._ids.replace(self._ids.view().take(rows))


class SparseColumn:
    """A list of ids per sample, with values beside them or not."""

    def __init__(self, dim: int, with_values: bool) -> None:
        self._dim = dim
        self._offsets = Growing((), np.int64)
        self._offsets.extend(np.zeros(1, np.int64))
        self._ids = Growing((), np.int32)
        self._values = Growing((), np.float32) if with_values else None

    def encode(self, values: Sequence[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return (lengths, ids) or (lengths, ids, values)."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        items = list(itertools.chain.from_iterable(values))
        if self._values is None:
            return lengths, self._encode_ids(items)
        ids, numbers = zip(*items, strict=True) if items else ((), ())
        floats = np.asarray(numbers, np.float32)
        if floats.shape != (len(items),):
            raise SampleError(f"{shorten(values[0])} is no list of (id, value)")
        return lengths, self._encode_ids(ids), floats

    def _encode_ids(self, items: Sequence[Any]) -> npt.NDArray[Any]:
        if not len(items):
            return np.empty(0, np.int32)
        ids = np.asarray(items)
        if ids.ndim != 1 or ids.dtype.kind not in "iub":
            raise SampleError(f"{shorten(items)} are no ids")
        return _in_range(ids, self._dim, lowest=0)

    def extend(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Append rows."""
        self._offsets.extend(self._offsets.view()[-1] + np.cumsum(encoded[0]))
        self._ids.extend(encoded[1])
        if self._values is not None:
            self._values.extend(encoded[2])

    def gather(self, rows: Ids) -> Argument:
        """Return the rows as a sparse matrix."""
        offsets, ids, values = self._pick(rows)
        return Argument(sparse=Sparse(self._dim, offsets, ids.astype(np.intp), values))  # numpy indexes with no other

    def keep(self, rows: Ids) -> None:
        """Forget the other rows."""
        offsets, ids, values = self._pick(rows)
        self._offsets.replace(offsets)
        self._ids.replace(ids)
        if self._values is not None and values is not None:
            self._values.replace(values)

    def _pick(self, rows: Ids) -> tuple[Ids, Ids, Array | None]:
        starts = self._offsets.view().take(rows)
        lengths = self._offsets.view().take(rows + 1) - starts
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        elements = np.repeat(starts - offsets[:-1], lengths)
        elements += np.arange(offsets[-1])
        values = None if self._values is None else self._values.view().take(elements)
        return offsets, self._ids.view().take(elements), values


def _in_range(ids: npt.NDArray[Any], upper: int, lowest: int) -> npt.NDArray[Any]:
    """Return ids as int32, -1 for NO_ID.

    Raises: SampleError: if one is below `lowest` or not below `upper`.
    """
    if ids.size and int(ids.max()) == NO_ID and lowest < 0:
        ids = np.where(ids == NO_ID, -1, ids)
    if ids.size and not (lowest <= int(ids.min()) and int(ids.max()) < upper):
        bad = next(one for one in ids.tolist() if not lowest <= one < upper)
        raise SampleError(f"id {bad} is not in [0, {upper})")
    return ids.astype(np.int32)


def make_column(name: str, kind: InputType) -> Column:
    """Return an empty column for a slot.

    Raises: ConfigError: naming the input type that is not supported yet.
    """
    if kind.seq_type != SequenceType.NO_SEQUENCE:
        raise ConfigError(
            f"input {name} is {kind}; sequences are not supported yet; supported are dense_vector, "
            "sparse_binary_vector, sparse_float_vector and integer_value"
        )
    if kind.type == DataType.Dense:
        return DenseColumn(kind.dim)
    if kind.type == DataType.Index:
        return IdColumn(kind.dim)
    return SparseColumn(kind.dim, with_values=kind.type == DataType.SparseValue)


class ColumnSet:
    """All slots of all samples, by input name."""

    def __init__(self, names: Sequence[str], kinds: Sequence[InputType]) -> None:
        self.names = list(names)
        self.kinds = list(kinds)
        self._columns = [make_column(name, kind) for name, kind in zip(names, kinds, strict=True)]
        self.rows = 0

    def encode(self, samples: Sequence[Any]) -> list[tuple[npt.NDArray[Any], ...]]:
        """Return samples (lists in slot order) as arrays, for `extend`.

        Raises: SampleError: naming the slot; its `row` is the place of the first wrong sample among these.
        """
        for number, sample in enumerate(samples):
            if not hasattr(sample, "__len__") or len(sample) != len(self._columns):
                raise SampleError(
                    f"{shorten(sample)} is no list of {len(self._columns)} slots ({', '.join(self.names)})", number
                )
        slots = list(zip(*samples, strict=True))
        return [self._encode_slot(position, values, samples) for position, values in enumerate(slots)]

    def _encode_slot(
        self, position: int, values: Sequence[Any], samples: Sequence[Any]
    ) -> tuple[npt.NDArray[Any], ...]:
        column = self._columns[position]
        slot = f"slot {self.names[position]} ({self.kinds[position]})"
        try:
            with np.errstate(over="raise"):
                return column.encode(values)
        except (TypeError, ValueError, ArithmeticError) as error:
            for number, value in enumerate(values):
                try:
                    with np.errstate(over="raise"):
                        column.encode([value])
                except (TypeError, ValueError, ArithmeticError) as cause:
                    raise SampleError(find_missing(samples[number], position) or f"{slot}: {cause}", number) from cause
            raise SampleError(f"{slot}: {error}") from error

    def extend(self, encoded: Sequence[tuple[npt.NDArray[Any], ...]], rows: int) -> None:
        """Append what `encode` returned for so many samples."""
        for column, part in zip(self._columns, encoded, strict=True):
            column.extend(part)
        self.rows += rows

    def gather(self, rows: Ids) -> dict[str, Argument]:
        """Return a batch of these samples."""
        return {name: column.gather(rows) for name, column in zip(self.names, self._columns, strict=True)}

    def keep(self, rows: Ids) -> None:
        """Forget all samples but these, which get the positions 0, 1, ..."""
        for column in self._columns:
            column.keep(rows)
        self.rows = len(rows)

"""The input types of PyDataProvider2. An input type describes one slot of a sample."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paddle_base.runtime import glog

NO_IDS = (-1, 0xFFFFFFFF)  # values that mean "no id"; old providers write -1 as an unsigned number


class SequenceType:
    """The number of levels of sequences in a slot of a sample."""

    NO_SEQUENCE = 0
    SEQUENCE = 1
    SUB_SEQUENCE = 2


class DataType:
    """The kind of an element of a slot."""

    Dense = 0
    SparseNonValue = 1
    SparseValue = 2
    Index = 3


@dataclass(frozen=True)
class InputType:
    """The type of a slot: its dimension (or number of ids), its `SequenceType` and its `DataType`.

    grid: number of dimensions of the grid that the items of a sequence form; 0 means no grid. A slot with a grid is the
        pair (extents of the grid, items).
    """

    dim: int
    seq_type: int
    type: int
    grid: int = 0

    def __str__(self) -> str:
        kind = ("dense_vector", "sparse_binary_vector", "sparse_float_vector", "integer_value")[self.type]
        return f"{kind}{('', '_sequence', '_sub_sequence')[self.seq_type]}({self.dim})"

    def expectation(self) -> str:
        """Return a phrase that describes what a slot of this type must be."""
        element = (
            f"a list of {self.dim} numbers",
            f"a list of ids below {self.dim}",
            f"a list of pairs (id below {self.dim}, number)",
            f"an id below {self.dim}",
        )[self.type]
        return f"{'a list, each item of it ' * self.seq_type}{element}"


def to_input_type(name: str, given: Any, what: str = "slot") -> InputType:
    """Return the type that a provider declares for the data layer `name`, with a whole number as its `dim`.

    Args: what: the word for it in messages; programs of paddle.v2 have data layers.

    A quotient such as dense_vector(784 / 2) is a whole number in Python 2 and a float in Python 3.

    Raises: TypeError: it is no input type, or its dim is no whole number; the text says what to write.
    """
    if not isinstance(given, InputType):
        function = getattr(given, "__name__", "")
        written = f"the function {function}, without its size" if function else repr(given)
        raise TypeError(
            f"the type of {what} {name} is {written}; it must be an input type with a size, for example "
            "dense_vector(10)"
        )
    written_dim: Any = given.dim
    dim = int(written_dim) if isinstance(written_dim, float) and written_dim.is_integer() else written_dim
    try:
        dim = operator.index(dim)
    except TypeError as error:
        raise TypeError(f"the size in the type of {what} {name} is {dim!r}; it must be a whole number") from error
    if dim < 0:
        raise TypeError(f"the size in the type of {what} {name} is {dim}; it must not be negative")
    return given if dim is given.dim else replace(given, dim=dim)


MOST_IDS = 1 << 31  # ids are stored as int32


class SampleCheck(Protocol):
    """A check of the first samples of a slot (`trainer.data.checks.ContentCheck`)."""

    kind: InputType

    def add(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Count encoded samples."""

    def end(self) -> None:
        """Judge the samples at the end of a pass."""


@dataclass
class Slot:
    """A slot of the samples: the name of its data layer, its declared type, and the size of the data layer.

    As in v0.10, ids are not compared with the declared type, which is wrong in many old providers: an id below the size
    of the data layer is used. So is an id below a declared type that is larger, because v0.10 did not compare ids with
    the data layer either: its layers that look up an id did, and ours do. If type and data layer both have size 1, the
    size says nothing: old configs give it to labels, and to the numbers of samples and queries.

    Attributes: size: None if there is no data layer; then the declared type has the right size. content: the check of
        the first samples, of which only training data has one. may_nest: whether the first samples tell if the type is
        that of a sequence or that of a sequence of sequences.
    """

    name: str
    kind: InputType
    size: int | None = None
    content: SampleCheck | None = None
    may_nest: bool = False
    _has_warned: bool = field(default=False, init=False)

    @property
    def stored(self) -> InputType:
        """The type that a column of this slot has; its `dim` is the limit of the ids."""
        if self.size is None or self.kind.type == DataType.Dense:
            return self.kind
        if self.kind.type != DataType.Index:
            return replace(self.kind, dim=self.size)
        most = max(self.size, self.kind.dim)
        return replace(self.kind, dim=MOST_IDS if most == 1 else most)

    def expectation(self) -> str:
        """Return a phrase that describes what the slot must be."""
        where = f"; data_layer {self.name} has size {self.size}" if (self.size or 0) > self.kind.dim else ""
        return self.stored.expectation() + where

    def nests(self, values: Sequence[Any]) -> bool:
        """Return whether these first values show that the sequences have sub-sequences; then change the type."""
        if not self.may_nest:
            return False
        self.may_nest = False
        levels = 1 + _LEVELS[self.kind.type]
        if next((depth for value in values if (depth := _count_levels(value)) is not None), levels) <= levels:
            return False
        self.kind = replace(self.kind, seq_type=SequenceType.SUB_SEQUENCE)
        if self.content is not None:
            self.content.kind = self.kind
        return True

    def compare(self) -> None:
        """Warn before the first sample if the declared type has more ids than the data layer; `watch` then is silent.

        A data layer of size 1 says nothing about its ids.
        """
        if self.kind.type == DataType.Index and self.kind.dim > (self.size or 0) > 1:
            self._has_warned = True
            glog.warning(
                f"data_layer {self.name} has size {self.size}, but the provider's type {self.kind} has ids up to "
                f"{self.kind.dim - 1}: a layer that looks up an id from {self.size} on ends the training; correct the "
                "size of the data layer, or of the type"
            )

    def watch(self, encoded: tuple[npt.NDArray[Any], ...]) -> None:
        """Warn once if an encoded id is not below the size of the declared type or of the data layer.

        Also pass the encoded values to the check of the first samples.
        """
        if self.content is not None:
            self.content.add(encoded)
        if self._has_warned or self.size is None or self.kind.type == DataType.Dense or self._is_exact:
            return
        ids = encoded[-2 if self.kind.type == DataType.SparseValue else -1]
        highest = int(ids.max()) if ids.size else -1
        if highest >= self.kind.dim:
            finding = "which is not below the size of its type"
            remedy = "training goes on, because the type's size does not count; correct the provider's input_types"
        elif highest >= self.size > 1:
            finding = "which is not below the size of its data layer"
            remedy = "a layer that looks up such an id ends the training; correct the size of the data layer"
        else:
            return
        self._has_warned = True
        glog.warning(
            f"slot {self.name} ({self.kind}) has the id {highest}, {finding}; data_layer {self.name} has size "
            f"{self.size}: {remedy}"
        )

    @property
    def _is_exact(self) -> bool:
        """Whether no id that the column takes is worth a warning."""
        return self.size == self.kind.dim and self.size != 1


# the levels of lists in an element of a sequence
_LEVELS = {DataType.Dense: 1, DataType.SparseNonValue: 1, DataType.SparseValue: 2, DataType.Index: 0}
_MOST_LEVELS = 5  # a list that contains itself has no end


def _count_levels(value: Any, most: int = _MOST_LEVELS) -> int | None:
    """Return the number of levels of lists around the first element that is no list; None if all lists are empty."""
    if isinstance(value, np.ndarray):
        return value.ndim if value.size else None
    if isinstance(value, str | bytes) or not hasattr(value, "__len__") or most == 0:
        return 0
    return next((1 + depth for item in value if (depth := _count_levels(item, most - 1)) is not None), None)


def dense_slot(dim: int, seq_type: int = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of a list or numpy array of `dim` numbers."""
    return InputType(dim, seq_type, DataType.Dense)


def sparse_non_value_slot(dim: int, seq_type: int = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of a vector of zeros and ones, given as the list of the positions of its ones."""
    return InputType(dim, seq_type, DataType.SparseNonValue)


def sparse_value_slot(dim: int, seq_type: int = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of a sparse vector, given as a list of pairs (id, value)."""
    return InputType(dim, seq_type, DataType.SparseValue)


def index_slot(value_range: int, seq_type: int = SequenceType.NO_SEQUENCE) -> InputType:
    """Return the type of an id in [0, value_range)."""
    return InputType(value_range, seq_type, DataType.Index)


dense_vector = dense_array = dense_slot
sparse_binary_vector = sparse_non_value_slot
sparse_float_vector = sparse_value_slot
integer_value = index_slot


def dense_vector_sequence(dim: int) -> InputType:
    """Return the type of a sequence of dense vectors."""
    return dense_slot(dim, SequenceType.SEQUENCE)


def dense_vector_sub_sequence(dim: int) -> InputType:
    """Return the type of a sequence of sequences of dense vectors."""
    return dense_slot(dim, SequenceType.SUB_SEQUENCE)


def sparse_binary_vector_sequence(dim: int) -> InputType:
    """Return the type of a sequence of 0/1 vectors."""
    return sparse_non_value_slot(dim, SequenceType.SEQUENCE)


def sparse_binary_vector_sub_sequence(dim: int) -> InputType:
    """Return the type of a sequence of sequences of 0/1 vectors."""
    return sparse_non_value_slot(dim, SequenceType.SUB_SEQUENCE)


def sparse_float_vector_sequence(dim: int) -> InputType:
    """Return the type of a sequence of sparse vectors."""
    return sparse_value_slot(dim, SequenceType.SEQUENCE)


def sparse_float_vector_sub_sequence(dim: int) -> InputType:
    """Return the type of a sequence of sequences of sparse vectors."""
    return sparse_value_slot(dim, SequenceType.SUB_SEQUENCE)


def integer_value_sequence(value_range: int) -> InputType:
    """Return the type of a sequence of ids."""
    return index_slot(value_range, SequenceType.SEQUENCE)


def integer_value_sub_sequence(value_range: int) -> InputType:
    """Return the type of a sequence of sequences of ids."""
    return index_slot(value_range, SequenceType.SUB_SEQUENCE)


integer_sequence = integer_value_sequence

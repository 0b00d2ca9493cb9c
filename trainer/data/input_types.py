"""The input types of PyDataProvider2. An input type describes one slot of a sample."""

from __future__ import annotations

from dataclasses import dataclass

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

"""Turn columns of Arrow into the values of a slot: arrays, and lists of arrays. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.columnar.package import load_pyarrow
from trainer.data.input_types import DataType, InputType
from trainer.data.lists import Lists, Pairs

MOST_WHOLE = 1 << 53  # whole numbers up to this one are exact in a float64


class ColumnError(ValueError):
    """A column does not fit its slot.

    Attributes: column: the position of the column among those of the slot.  row: the position of the first row that
    does not fit, or None if none does.
    """

    def __init__(self, message: str, row: int | None = None, column: int = 0) -> None:
        super().__init__(message)
        self.row, self.column = row, column


def make_values(kind: InputType, arrays: Sequence[Any]) -> Any:
    """Return the values of a slot: an array with a row for each sample, or `Lists`.

    A dense vector is a list of numbers, or several columns of numbers. A sparse vector with values is a map, a list of
    structures (id, value), or two columns of lists.
    Raises: ColumnError: a column has nulls, or another type than the slot needs.
    """
    if kind.type == DataType.Dense and not kind.seq_type and (kind.dim == 1 or len(arrays) > 1):
        return np.stack([_at(number, _numbers, array) for number, array in enumerate(arrays)], axis=1)
    if kind.type == DataType.SparseValue and len(arrays) == 2:
        ids = _at(0, _in_lists, arrays[0], kind.seq_type + 1, _ids)
        values = _at(1, _in_lists, arrays[1], kind.seq_type + 1, _numbers)
        return _pair(ids, values)
    if len(arrays) != 1:
        raise ColumnError(f"a slot of type {kind} has one column, not {len(arrays)}")
    if kind.type == DataType.Dense:
        return _in_lists(arrays[0], kind.seq_type, lambda array: _vectors(array, kind.dim))
    if kind.type == DataType.SparseValue:
        return _in_lists(arrays[0], kind.seq_type, _sparse)
    return _in_lists(arrays[0], kind.seq_type + (kind.type == DataType.SparseNonValue), _ids)


def _at(column: int, make: Any, *arguments: Any) -> Any:
    """Return the result of a function; an error names the column at this position."""
    try:
        return make(*arguments)
    except ColumnError as error:
        raise ColumnError(str(error), error.row, column) from error


def _in_lists(array: Any, levels: int, make: Any) -> Any:
    """Return the values inside so many levels of lists. Args: make: the function of the values."""
    if not levels:
        return make(array)
    lengths, items = _unlist(array)
    return Lists(lengths, _of_items(lengths, _in_lists, items, levels - 1, make))


def _of_items(lengths: npt.NDArray[np.int64], make: Any, *arguments: Any) -> Any:
    """Return the result of a function of the items of lists; an error names the row of the list."""
    try:
        return make(*arguments)
    except ColumnError as error:
        if error.row is None:
            raise
        raise ColumnError(str(error), int(np.searchsorted(np.cumsum(lengths), error.row, side="right"))) from error


def _unlist(array: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Return the lengths of lists, and the items of all lists."""
    types = load_pyarrow("types")
    _require_no_null(array)
    if types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64), array.flatten()
    if types.is_list(array.type) or types.is_large_list(array.type):
        return np.diff(array.offsets.to_numpy(zero_copy_only=False)).astype(np.int64), array.flatten()
    raise ColumnError(f"is of type {array.type}, and lists are needed")


def _sparse(array: Any) -> Lists:
    """Return the pairs of each row of a map, or of lists of structures."""
    types = load_pyarrow("types")
    if types.is_map(array.type):
        _require_no_null(array)
        offsets = array.offsets.to_numpy(zero_copy_only=False)
        first, count, lengths = int(offsets[0]), int(offsets[-1] - offsets[0]), np.diff(offsets).astype(np.int64)
        keys, items = array.keys.slice(first, count), array.items.slice(first, count)
    else:
        lengths, pairs = _unlist(array)
        if not types.is_struct(pairs.type) or pairs.type.num_fields != 2:
            raise ColumnError(f"is of type {array.type}, and a map or lists of pairs are needed")
        _of_items(lengths, _require_no_null, pairs)
        keys, items = pairs.flatten()
    return Lists(lengths, Pairs(_of_items(lengths, _ids, keys), _of_items(lengths, _numbers, items)))


def _pair(ids: Lists, values: Lists) -> Lists:
    """Return lists of pairs from lists of ids and lists of values, which must have the same lengths."""
    different = np.flatnonzero(ids.lengths != values.lengths)
    if len(different):
        row = int(different[0])
        raise ColumnError(f"has {values.lengths[row]} values for {ids.lengths[row]} ids", row, 1)
    inner = _pair(ids.items, values.items) if isinstance(ids.items, Lists) else Pairs(ids.items, values.items)
    return Lists(ids.lengths, inner)


def _vectors(array: Any, dim: int) -> npt.NDArray[Any]:
    """Return a matrix with a row for each list of `dim` numbers; a number alone is a list of one."""
    if dim == 1 and not hasattr(array.type, "value_field"):
        return _numbers(array).reshape(-1, 1)
    lengths, items = _unlist(array)
    wrong = np.flatnonzero(lengths != dim)
    if len(wrong):
        raise ColumnError(f"has a list of {lengths[wrong[0]]} numbers instead of {dim}", int(wrong[0]))
    found: npt.NDArray[Any] = _of_items(lengths, _numbers, items)
    return found.reshape(len(lengths), dim)


def _ids(array: Any) -> npt.NDArray[Any]:
    """Return whole numbers; numbers with a fraction are an error."""
    numbers = _numbers(array, "whole numbers are needed")
    if numbers.dtype.kind == "b":
        return numbers.astype(np.int8)
    if numbers.dtype.kind != "f":
        return numbers
    wrong = np.flatnonzero(~(np.abs(numbers) <= MOST_WHOLE) | (numbers != np.floor(numbers)))
    if len(wrong):
        raise ColumnError(f"has {numbers[wrong[0]]:g}, which is no whole number", int(wrong[0]))
    return numbers.astype(np.int64)


def _numbers(array: Any, needed: str = "numbers are needed") -> npt.NDArray[Any]:
    """Return numbers or booleans, of which none is null."""
    arrow, types = load_pyarrow(), load_pyarrow("types")
    kind = array.type
    if types.is_dictionary(kind):
        array = array.dictionary_decode()
    if types.is_decimal(array.type):
        array = array.cast(arrow.float64())
    if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_boolean(array.type)):
        nested = "which is nested, " if types.is_nested(kind) else ""
        raise ColumnError(f"is of type {kind}, {nested}and {needed}")
    _require_no_null(array)
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found


def _require_no_null(array: Any) -> None:
    if array.null_count:
        row = int(np.argmin(array.is_valid().to_numpy(zero_copy_only=False)))
        raise ColumnError("is null; fill the nulls, or leave such rows out", row)

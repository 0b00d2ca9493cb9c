"""Samples as columns: a batch that is converted at once is the batch that is taken from stored samples."""

from __future__ import annotations

import numpy as np
from each import each

from trainer.data.columns import ColumnSet
from trainer.data.input_types import DataType, InputType, SequenceType, Slot

ELEMENTS = {
    DataType.Dense: [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    DataType.SparseNonValue: [[0], [], [1, 2]],
    DataType.SparseValue: [[(0, 0.5)], [], [(1, 1.5), (2, 2.5)]],
    DataType.Index: [2, 0, 1],
}


def values_of(kind):
    """Three values of a type; sequences are empty, and have one and two elements."""
    one, two, three = ELEMENTS[kind.type]
    if kind.grid:
        return [((1, 1), [one]), ((2, 1), [two, three]), ((1, 2), [three, one])]
    return {
        SequenceType.NO_SEQUENCE: [one, two, three],
        SequenceType.SEQUENCE: [[one], [], [two, three]],
        SequenceType.SUB_SEQUENCE: [[[one], []], [], [[two, three], [one], [two]]],
    }[kind.seq_type]


def arrays_of(argument):
    sparse = argument.sparse
    inner = () if sparse is None else (sparse.offsets, sparse.ids, sparse.values)
    return (argument.value, argument.ids, argument.starts, argument.sub_starts, argument.grids, *inner)


@each(
    "kind",
    [InputType(3, levels, type) for type in ELEMENTS for levels in range(3)]
    + [InputType(3, SequenceType.SEQUENCE, type, grid=2) for type in ELEMENTS],
    ids=str,
)
def test_a_converted_batch_is_that_of_stored_samples(kind):
    columns = ColumnSet([Slot("x", kind, size=3)])
    encoded = columns.encode([[value] for value in values_of(kind)])
    converted = columns.convert(encoded)["x"]
    columns.extend(encoded, 3)
    stored = columns.gather(np.arange(3))["x"]
    assert converted.rows == stored.rows and converted.sequences == 3
    for mine, other in zip(arrays_of(converted), arrays_of(stored), strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, other, strict=True)

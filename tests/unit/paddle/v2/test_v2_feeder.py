"""What `data_feeder.DataFeeder` makes of samples. v0.10's own tests read it as slots."""

import numpy as np
import pytest

from paddle.v2 import data_type
from paddle.v2.data_feeder import DataFeeder


def feed(batch, *types, feeding=None):
    return DataFeeder([(f"x{number}", one) for number, one in enumerate(types)], feeding)(batch)


def test_a_column_may_be_used_twice_or_not_at_all():
    types = data_type.sparse_binary_vector(9), data_type.dense_vector(2), data_type.sparse_binary_vector(9)
    sample = [[5, 6], [1, 3], [2, 4], 5]
    for batch in ([sample, sample], [tuple(sample)] * 2):
        slots = feed(batch, *types, feeding={"x0": 2, "x1": 0, "x2": 2})
        assert slots.getSlotNum() == 3
        assert slots.getSlotValue(0).getSparseRowCols(1) == slots.getSlotValue(2).getSparseRowCols(0) == [2, 4]
        assert slots.getSlotValue(1).copyToNumpyMat().tolist() == [[5, 6], [5, 6]]


def test_sparse_rows_come_back_with_their_values():
    slots = feed([[[(7, 0.5), (3, 2)]], [[]]], data_type.sparse_float_vector(9))
    assert slots.getSlotValue(0).getSparseRowColsVal(0) == [(7, 0.5), (3, 2.0)]
    assert slots.getSlotValue(0).getSparseRowCols(1) == []
    assert slots.getSlotValue(0).copyToNumpyMat()[0].tolist() == [0, 0, 0, 2, 0, 0, 0, 0.5, 0]


def test_ids_come_back_with_the_starts_of_their_sequences():
    slots = feed(
        [[1, [2, 3], [[4], [5, 6]]], [2, [], [[7]]]],
        data_type.integer_value(9), data_type.integer_value_sequence(9), data_type.integer_value_sub_sequence(9),
    )  # fmt: skip
    assert slots.getSlotIds(0).copyToNumpyArray().tolist() == [1, 2]
    assert slots.getSlotIds(1).copyToNumpyArray().dtype == np.int32
    assert slots.getSlotSequenceStartPositions(0).copyToNumpyArray().tolist() == []
    assert slots.getSlotSequenceStartPositions(1).copyToNumpyArray().tolist() == [0, 2, 2]
    assert slots.getSlotSequenceStartPositions(2).copyToNumpyArray().tolist() == [0, 3, 4]
    assert slots.getSlotSubSequenceStartPositions(2).copyToNumpyArray().tolist() == [0, 1, 3, 4]


def test_slots_and_rows_that_are_not_there_are_said():
    slots = feed([[[1, 2], [3]]], data_type.dense_vector(2), data_type.sparse_binary_vector(9))
    with pytest.raises(IndexError, match="there is no slot 2; there are 2"):
        slots.getSlotValue(2)
    with pytest.raises(IndexError, match="there is no row 1; there are 1"):
        slots.getSlotValue(1).getSparseRowCols(1)
    with pytest.raises(TypeError, match="dense rows; use copyToNumpyMat"):
        slots.getSlotValue(0).getSparseRowCols(0)

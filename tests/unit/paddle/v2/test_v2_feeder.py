"""DataFeeder: which columns it takes, the batches that it accepts, and batches that are joined."""

import traceback

import numpy as np
import pytest

from paddle.v2 import data_type
from paddle.v2.data_feeder import DataFeeder
from paddle_base.runtime.errors import DataError
from trainer.v2.feeder import DataFeeder as NetworkFeeder

TYPES = [
    ("dense", data_type.dense_vector(2)),
    ("words", data_type.integer_value_sequence(9)),
    ("bag", data_type.sparse_float_vector(5)),
    ("label", data_type.integer_value(3)),
]
SAMPLES = [
    ([1.0, 2], [1, 2, 3], [(0, 0.5)], 0),
    ([3, 4.5], [], [], 2),
    (np.array([5.0, 6.0], np.float32), [8], [(4, 2.0), (1, -1.0)], 1),
]


def show(batch):
    """The arrays of a batch by name."""
    found = {}
    for name, one in batch.items():
        parts = (one.value, one.ids, one.starts, None if one.sparse is None else one.sparse.to_dense())
        found[name] = [None if part is None else part.tolist() for part in parts]
    return found


def test_a_batch_may_be_a_list_or_an_iterator_that_is_read_once():
    feeder = DataFeeder(TYPES)
    whole = show(feeder(SAMPLES))
    assert whole["words"] == [None, [1, 2, 3, 8], [0, 3, 3, 4], None]
    assert whole["label"] == [None, [0, 2, 1], None, None]
    assert show(feeder(iter(SAMPLES))) == show(feeder(tuple(map(list, SAMPLES)))) == whole


def test_parts_that_were_encoded_alone_are_the_whole_batch():
    """`paddle serve` encodes each request in its own thread."""
    feeder = DataFeeder(TYPES)
    parts = [feeder.encode(SAMPLES[:1]), feeder.encode(SAMPLES[1:])]
    assert show(feeder.join(parts)) == show(feeder(SAMPLES))


def test_feeding_takes_columns_by_their_places():
    feeder = DataFeeder(TYPES, {"label": 0, "words": 2, "dense": 1, "bag": 3})
    assert show(feeder([(s[3], s[0], s[1], s[2], "unused") for s in SAMPLES])) == show(DataFeeder(TYPES)(SAMPLES))


def test_a_sample_without_a_column_is_named():
    feeder = DataFeeder(TYPES)
    with pytest.raises(DataError, match=r"pass 1, sample 1 is .* it must be a list or tuple of 4 columns"):
        feeder([SAMPLES[0], SAMPLES[1][:2]], "pass 1")
    with pytest.raises(DataError, match="sample 0 is 7; it must be a list or tuple"):
        feeder([7])
    with pytest.raises(DataError, match=r"sample 2: data layer label \(integer_value\(3\)\): .*3"):
        feeder([*SAMPLES[:2], (*SAMPLES[2][:3], 3)])


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


def test_pictures_of_any_size_come_back_with_their_height_and_width():
    """v0.11 looked at the array alone; a network takes the size of its data layer."""
    types = data_type.dense_array(24), data_type.dense_vector(1)
    feeder = DataFeeder([("picture", types[0]), ("y", types[1])])
    for shape in ((3, 2, 4), (3, 5, 7), (4, 6), (5, 8)):
        pictures = [np.arange(float(np.prod(shape))).reshape(shape) + number for number in range(2)]
        slots = feeder([[picture, [0.5]] for picture in pictures])
        assert (slots.getSlotFrameHeight(0), slots.getSlotFrameWidth(0)) == shape[-2:]
        assert (slots.getSlotFrameHeight(1), slots.getSlotFrameWidth(1)) == (0, 0)
        assert slots.getSlotValue(0).copyToNumpyMat().tolist() == [picture.reshape(-1).tolist() for picture in pictures]
    flat = feeder([[list(range(24)), [1]]])
    assert (flat.getSlotFrameHeight(0), flat.getSlotFrameWidth(0)) == (0, 0)
    with pytest.raises(DataError, match=r"sample 1 has the shape \(3, 2, 4\) and sample 0 \(3, 2, 5\): The data shape"):
        feeder([[np.zeros((3, 2, 5)), [0]], [np.zeros((3, 2, 4)), [0]]])
    with pytest.raises(DataError, match=r"sample 0: .* it has 30 numbers instead of 24"):
        NetworkFeeder([("picture", types[0])])([[np.zeros((3, 2, 5))]])
    with pytest.raises(IndexError, match="there is no slot 2"):
        slots.getSlotFrameHeight(2)


def test_slots_and_rows_that_are_not_there_are_said():
    slots = feed([[[1, 2], [3]]], data_type.dense_vector(2), data_type.sparse_binary_vector(9))
    with pytest.raises(IndexError, match="there is no slot 2; there are 2"):
        slots.getSlotValue(2)
    with pytest.raises(IndexError, match="there is no row 1; there are 1"):
        slots.getSlotValue(1).getSparseRowCols(1)
    with pytest.raises(TypeError, match="dense rows; use copyToNumpyMat"):
        slots.getSlotValue(0).getSparseRowCols(0)


def test_a_sample_in_place_of_a_batch_is_told_as_a_reader_without_batch():
    with pytest.raises(DataError, match=r"sample 1 is 0; .*; does the reader lack paddle\.batch\(reader, size\)\?$"):
        DataFeeder([TYPES[0], TYPES[3]])(([1.0, 2.0], 0))


def test_a_traceback_of_a_wrong_sample_has_one_exception():
    for batch in ([([1.0], [1], [], 0)], [([1.0, 2],)]):
        with pytest.raises(DataError, match="pass 0, batch 0, sample 0") as raised:
            DataFeeder(TYPES)(batch, "pass 0, batch 0")
        assert "".join(traceback.format_exception(raised.value)).count("Traceback") == 1

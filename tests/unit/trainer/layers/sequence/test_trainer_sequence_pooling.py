"""The poolings over sequences: their rows, their gradients, strides and sub-sequences."""

import itertools

import numpy as np
import pytest
from each import each
from layer_checks import check_gradients, dense, make_layer, run

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument

W = 3
STARTS = {
    "several lengths": [0, 3, 3, 4, 9, 11, 11],
    "one sequence": [0, 6],
    "all of length 1": [0, 1, 2, 3],
    "all empty": [0, 0, 0],
    "no sequence": [0],
    "many short ones": [0, 2, 3, 5, 5, 6, 8, 10, 11, 12, 13, 14],
}
SUB_STARTS = {"several": ([0, 4, 4, 7, 12], [0, 1, 4, 6, 7, 7, 12]), "one": ([0, 3], [0, 3]), "none": ([0, 0], [0])}

KINDS = {
    "max": ("max", {}),
    "average": ("average", {"average_strategy": "average"}),
    "sum": ("average", {"average_strategy": "sum"}),
    "squarerootn": ("average", {"average_strategy": "squarerootn"}),
    "last": ("seqlastins", {}),
    "first": ("seqlastins", {"select_first": True}),
}

BY_HAND = {
    "max": lambda frames: frames.max(axis=0),
    "average": lambda frames: frames.mean(axis=0),
    "sum": lambda frames: frames.sum(axis=0),
    "squarerootn": lambda frames: frames.sum(axis=0) / np.sqrt(len(frames)),
    "last": lambda frames: frames[-1],
    "first": lambda frames: frames[0],
}


def pooling(name, bias=0, **extra):
    kind, fields = KINDS[name]
    return make_layer(kind, W, [{}], bias, **fields, **extra)


def frames(count):
    return np.random.default_rng(count).normal(size=(count, W))


def by_hand(name, x, starts):
    stretches = itertools.pairwise(starts)
    rows = [BY_HAND[name](x[a:b]) if a < b else np.zeros(W) for a, b in stretches]
    return np.array(rows).reshape(len(starts) - 1, W)


@each("lengths", STARTS)
@each("name", KINDS)
def test_each_sequence_gives_one_row(name, lengths):
    starts, x = STARTS[lengths], frames(STARTS[lengths][-1])
    layer, _ = pooling(name)
    result = run(layer, dense(x, starts))
    np.testing.assert_allclose(result.value, by_hand(name, x, starts))
    assert result.starts is None


@each("shape", SUB_STARTS)
@each("name", KINDS)
def test_each_sub_sequence_gives_one_row_of_a_sequence(name, shape):
    starts, sub_starts = SUB_STARTS[shape]
    x = frames(starts[-1])
    layer, _ = pooling(name, trans_type="seq")
    result = run(layer, dense(x, starts, sub_starts))
    np.testing.assert_allclose(result.value, by_hand(name, x, sub_starts))
    assert result.starts.tolist() == {"several": [0, 2, 2, 4, 6], "one": [0, 1], "none": [0, 0]}[shape]
    assert result.sub_starts is None


@pytest.mark.parametrize("name", KINDS)
def test_sub_sequences_are_ignored_when_sequences_are_pooled(name):
    starts, sub_starts = SUB_STARTS["several"]
    x = frames(starts[-1])
    layer, _ = pooling(name)
    np.testing.assert_allclose(run(layer, dense(x, starts, sub_starts)).value, by_hand(name, x, starts))


@pytest.mark.parametrize("name", KINDS)
def test_strides_cut_sequences_into_pieces(name):
    """The example of v0.10's Argument.h: pieces from the start of a sequence, of first frames from its end."""
    starts = [0, 9, 14, 17, 17, 30]
    x = frames(30)
    layer, _ = pooling(name, seq_pool_stride=5)
    result = run(layer, dense(x, starts))
    pieces = [0, 4, 9, 14, 17, 20, 25, 30] if name == "first" else [0, 5, 9, 14, 17, 22, 27, 30]
    np.testing.assert_allclose(result.value, by_hand(name, x, pieces))
    assert result.starts.tolist() == [0, 2, 3, 4, 4, 7]


def test_output_max_index_gives_the_first_maximum_s_frame_in_the_batch():
    layer, _ = pooling("max", output_max_index=True)
    x = [[1.0, 5, 0], [1, 7, 0], [3, 3, 3], [4, 3, 3]]
    result = run(layer, dense(x, [0, 2, 2, 4]))
    assert result.value.tolist() == [[0, 1, 0], [-1, -1, -1], [3, 2, 2]]


def test_only_the_first_of_equal_maxima_takes_the_gradient():
    layer, _ = pooling("max")
    run(layer, dense([[1.0, 2, 0], [1, 2, 5], [0, 2, 5]], [0, 3]))
    gradient = layer.backward(np.array([[1.0, 2, 3]]), [True])[0]
    assert gradient.tolist() == [[1, 2, 0], [0, 0, 3], [0, 0, 0]]


@each("bias", [0, W])
@each("lengths", STARTS)
@each("name", KINDS)
def test_gradients_agree_with_finite_differences(name, lengths, bias):
    starts = STARTS[lengths]
    check_gradients(*pooling(name, bias), [dense(frames(starts[-1]), starts)])


@each("shape", SUB_STARTS)
@each("name", KINDS)
def test_gradients_of_sub_sequences_agree_with_finite_differences(name, shape):
    starts, sub_starts = SUB_STARTS[shape]
    check_gradients(*pooling(name, trans_type="seq"), [dense(frames(starts[-1]), starts, sub_starts)])


@pytest.mark.parametrize("name", KINDS)
def test_gradients_of_strides_agree_with_finite_differences(name):
    check_gradients(*pooling(name, seq_pool_stride=2), [dense(frames(9), [0, 4, 4, 5, 9])])


@pytest.mark.parametrize("fields", [{}, {"trans_type": "seq"}])
@pytest.mark.parametrize("name", ["average", "sum", "squarerootn"])
def test_frames_that_repeat_are_pooled_like_others(name, fields):
    """From their distinct rows, whose gradients are the sums over the frames."""
    starts, sub_starts = SUB_STARTS["several"]
    distinct, index = frames(5), np.array([4, 0, 1, 1, 2, 0, 3, 4, 4, 1, 0, 2])
    repeating = Argument(distinct=distinct, index=index, starts=np.array(starts), sub_starts=np.array(sub_starts))
    layer, table = pooling(name, bias=W, **fields)
    gradient = np.random.default_rng(6).normal(size=(4 if not fields else 6, W))

    plain = run(layer, dense(distinct[index], starts, sub_starts))
    of_frames, of_bias = layer.backward(gradient.copy(), [True])[0], table.gradients.copy()
    table.clear_gradients()
    result = run(layer, repeating)
    of_distinct = layer.backward(gradient.copy(), [True])[0].rows

    np.testing.assert_allclose(result.value, plain.value)
    assert (result.starts is None) == (plain.starts is None)
    expected = np.zeros_like(distinct)
    np.add.at(expected, index, of_frames)
    np.testing.assert_allclose(of_distinct, expected)
    np.testing.assert_array_equal(table.gradients, of_bias)


@pytest.mark.parametrize(
    ("fields", "given", "what"),
    [
        ({}, (None, None), "sequences"),
        ({"trans_type": "seq"}, ([0, 3], None), "sub-sequences"),
        ({"seq_pool_stride": 2}, ([0, 3], [0, 3]), "cannot be used with sub-sequences"),
    ],
)
def test_inputs_of_another_kind_are_refused(fields, given, what):
    layer, _ = pooling("max", **fields)
    with pytest.raises(ConfigError, match=what):
        run(layer, dense(frames(3), *given))

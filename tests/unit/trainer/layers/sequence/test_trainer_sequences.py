"""Layers that make sequences of sequences, and those that choose: by hand, and finite differences in float64."""

import numpy as np
import pytest
from layer_checks import check_gradients, dense, ids, make_layer, make_network, run, types_of

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument
from trainer.layers.dense import selection
from trainer.layers.sequence import sequences

W = 2
STARTS = [0, 3, 3, 4, 9]
NESTED = [0, 3, 3, 9], [0, 1, 3, 5, 5, 9]


def frames(count, width=W):
    return np.arange(1.0, 1 + count * width).reshape(count, width)


def first_column(result):
    return result.value[:, 0].tolist()


# ----- Expand -----


def test_expand_repeats_a_row_for_each_frame():
    layer, _ = make_layer("expand", W, [{}] * 2, trans_type="non-seq")
    like = dense(frames(9), *NESTED)
    result = run(layer, dense([[1.0, 2], [3, 4], [5, 6]]), like)
    assert first_column(result) == [1] * 3 + [5] * 6
    assert result.starts.tolist() == NESTED[0]
    assert result.sub_starts.tolist() == NESTED[1]


def test_expand_of_a_sequence_repeats_a_row_for_each_frame_of_a_sub_sequence():
    layer, _ = make_layer("expand", W, [{}] * 2, trans_type="seq")
    result = run(layer, dense(frames(5), [0, 2, 2, 5]), dense(frames(9), *NESTED))
    assert first_column(result) == [1, 3, 3, 5, 5, 9, 9, 9, 9]
    assert result.sub_starts.tolist() == NESTED[1]


def test_expand_takes_lengths_from_ids_too():
    layer, _ = make_layer("expand", W, [{}] * 2)
    assert first_column(run(layer, dense([[1.0, 2], [3, 4]]), ids([7, 7, 7], [0, 2, 3]))) == [1, 1, 3]


@pytest.mark.parametrize(("kind", "rows"), [("non-seq", 3), ("seq", 5)])
def test_expand_gradients_agree_with_finite_differences(kind, rows):
    layer, table = make_layer("expand", W, [{}] * 2, bias=W, trans_type=kind)
    check_gradients(layer, table, [dense(frames(rows)), dense(frames(9), *NESTED)], varied=[0])


def test_expand_refuses_another_number_of_rows():
    layer, _ = make_layer("expand", W, [{}] * 2)
    with pytest.raises(DataError, match="3 rows for 4 sequences"):
        run(layer, dense(frames(3)), dense(frames(9), STARTS))


# ----- Concatenation, new frames -----


def test_seqconcat_joins_along_time():
    layer, _ = make_layer("seqconcat", W, [{}] * 2)
    result = run(layer, dense(frames(3), [0, 2, 2, 3]), dense(-frames(3), [0, 1, 3, 3]))
    assert first_column(result) == [1, 3, -1, -3, -5, 5]
    assert result.starts.tolist() == [0, 3, 5, 6]


def test_seqconcat_gradients_agree_with_finite_differences():
    layer, table = make_layer("seqconcat", W, [{}] * 2, bias=W)
    check_gradients(layer, table, [dense(frames(3), [0, 2, 2, 3]), dense(frames(4), [0, 1, 3, 4])])
    with pytest.raises(DataError, match="1 and 2 sequences"):
        run(layer, dense(frames(3), [0, 3]), dense(frames(3), [0, 1, 3]))


@pytest.mark.parametrize(
    ("size", "starts", "expected"), [(1, [0, 4, 4, 6], [0, 8, 8, 12]), (4, [0, 4, 4, 6], [0, 2, 2, 3])]
)
def test_seqreshape_gives_frames_of_another_size(size, starts, expected):
    layer, table = make_layer("seqreshape", size, [{}], bias=size)
    table.values[:] = 0
    x = dense(frames(6), starts)
    result = run(layer, x)
    np.testing.assert_array_equal(result.value, frames(12 // size, size))
    assert result.starts.tolist() == expected
    check_gradients(layer, table, [x])


def test_seqreshape_refuses_a_sequence_that_does_not_fill_its_frames():
    layer, _ = make_layer("seqreshape", 4, [{}])
    with pytest.raises(DataError, match="the numbers of a sequence do not fill frames of 4 numbers"):
        run(layer, dense(frames(4), [0, 1, 4]))


# ----- Cuts -----


def test_subseq_takes_some_frames_of_each_sequence():
    layer, _ = make_layer("subseq", W, [{}] * 3)
    result = run(layer, dense(frames(9), STARTS), ids([1, 0, 0, 2]), ids([2, 0, 1, 2]))
    assert first_column(result) == [3, 5, 7, 13, 15]
    assert result.starts.tolist() == [0, 2, 2, 3, 5]


def test_subseq_gradients_agree_with_finite_differences():
    layer, table = make_layer("subseq", W, [{}] * 3, bias=W)
    check_gradients(layer, table, [dense(frames(9), STARTS), ids([1, 0, 0, 2]), ids([2, 0, 0, 3])])


def test_subseq_refuses_frames_that_a_sequence_does_not_have():
    layer, _ = make_layer("subseq", W, [{}] * 3)
    with pytest.raises(DataError, match="sequence 2 of the batch has 1 frames, but 1 frames from frame 1 on"):
        run(layer, dense(frames(9), STARTS), ids([1, 0, 1, 2]), ids([2, 0, 1, 2]))


SLICES = {
    "first and last": ([[0, 1], [-1, 7], [0, -1], [2, 0]], [[0, 2], [-1, 7], [0, 5], [2, 4]], {}),
    "first": ([[0, 1], [-1, 7], [0, -1], [2, 4]], None, {"select_first": True}),
    "last": (None, [[0, 1], [-1, 7], [0, -1], [2, 4]], {"select_first": False}),
}
EXPECTED = {
    "first and last": ([1, 3, 5, 7, 13, 9, 11, 13, 15, 17], [0, 1, 3, 4, 5, 10]),
    "first": ([1, 3, 5, 3, 5, 7, 13, 15, 17, 17], [0, 3, 5, 6, 9, 10]),
    "last": ([1, 1, 3, 7, 9, 11, 13, 9, 11, 13, 15, 17], [0, 1, 3, 4, 7, 12]),
}


def slices(name):
    begins, ends, fields = SLICES[name]
    given = [dense(np.array(one, float)) for one in (begins, ends) if one is not None]
    return make_layer("seq_slice", W, [{}] * (1 + len(given)), **fields), given


@pytest.mark.parametrize("name", SLICES)
def test_each_slice_becomes_a_sequence(name):
    (layer, table), given = slices(name)
    x = dense(frames(9), STARTS)
    result = run(layer, x, *given)
    assert (first_column(result), result.starts.tolist()) == EXPECTED[name]
    assert result.sub_starts is None
    check_gradients(layer, table, [x, *given], varied=[0])


def test_slices_of_sub_sequences_become_sub_sequences():
    layer, table = make_layer("seq_slice", W, [{}] * 2, select_first=True)
    x, begins = dense(frames(9), *NESTED), dense([[0.0, -1], [0, 1], [1, -1], [-1, -1], [3, 2]])
    result = run(layer, x, begins)
    assert first_column(result) == [1, 3, 5, 5, 9, 17, 15, 17]
    assert result.sub_starts.tolist() == [0, 1, 3, 4, 5, 6, 8]
    assert result.starts.tolist() == [0, 4, 4, 8]
    check_gradients(layer, table, [x, begins], varied=[0])


@pytest.mark.parametrize("begins", [[[3.0]], [[-2.0]]])
def test_a_slice_outside_of_its_sequence_is_refused(begins):
    layer, _ = make_layer("seq_slice", W, [{}] * 2, select_first=True)
    with pytest.raises(DataError, match="a slice is empty or not inside its sequence"):
        run(layer, dense(frames(3), [0, 3]), dense(begins))


def test_sub_nested_seq_selects_sub_sequences():
    layer, table = make_layer("sub_nested_seq", W, [{}] * 2)
    x, numbers = dense(frames(9), *NESTED), dense([[1.0, 0, -1], [-1, -1, -1], [2, 2, 0]])
    result = run(layer, x, numbers)
    assert first_column(result) == [3, 5, 1, *[11, 13, 15, 17] * 2, 7, 9]
    assert result.starts.tolist() == [0, 3, 3, 13]
    assert result.sub_starts.tolist() == [0, 2, 3, 7, 11, 13]
    check_gradients(layer, table, [x, numbers], varied=[0])


def test_sub_nested_seq_refuses_a_number_that_is_not_there():
    layer, _ = make_layer("sub_nested_seq", W, [{}] * 2)
    with pytest.raises(DataError, match="a selected sub-sequence does not exist"):
        run(layer, dense(frames(9), *NESTED), dense([[1.0], [-1], [3]]))
    with pytest.raises(ConfigError, match="sub-sequences"):
        run(layer, dense(frames(9), STARTS), dense([[1.0]] * 4))


SCORES = [[0.1], [0.9], [0.5], [0.7], [0.2], [0.3], [0.3], [0.1], [0.0]]


def test_kmax_seq_score_gives_the_best_frames_of_each_sequence():
    layer, _ = make_layer("kmax_seq_score", 0, [{}], beam_size=2)
    assert run(layer, dense(SCORES, STARTS)).value.tolist() == [[1, 2], [-1, -1], [0, -1], [2, 1]]  # ties
    nested = run(layer, dense(SCORES, *NESTED))
    assert nested.value.tolist() == [[0, -1], [0, 1], [0, 1], [-1, -1], [0, 1]]
    assert nested.starts is None


# ----- Row convolution -----


def test_row_conv_looks_ahead_within_the_sequence():
    layer, table = make_layer("row_conv", 1, [{"parameter": 3, "row_conv_conf": {"context_length": 3}}])
    table.values[:] = [1, 10, 100]
    result = run(layer, dense([[1.0], [2], [3], [4], [5]], [0, 4, 4, 5]))
    assert first_column(result) == [321, 432, 43, 4, 5]
    assert result.starts.tolist() == [0, 4, 4, 5]


@pytest.mark.parametrize("starts", [STARTS, [0, 2], [0, 1], [0, 0], [0, 5, 5, 6]])
def test_row_conv_gradients_agree_with_finite_differences(starts):
    layer, table = make_layer("row_conv", W, [{"parameter": 3 * W, "row_conv_conf": {"context_length": 3}}])
    check_gradients(layer, table, [dense(np.random.default_rng(4).normal(size=(starts[-1], W)), starts)])


# ----- Choices -----


def test_multiplex_takes_each_row_from_the_input_that_its_id_names():
    layer, table = make_layer("multiplex", W, [{}] * 4)
    given = [ids([2, 0, 1]), dense(frames(3)), dense(10 * frames(3)), dense(100 * frames(3))]
    assert first_column(run(layer, *given)) == [100, 3, 50]
    check_gradients(layer, table, given)
    with pytest.raises(DataError, match=r"id 3 is not in \[0, 3\)"):
        run(layer, ids([3, 0, 1]), *given[1:])


def test_eos_id_marks_the_end_of_a_sentence():
    layer, _ = make_layer("eos_id", 2, [{}], eos_id=5)
    result = run(layer, ids([1, 5, 0, 5], [0, 2, 4]))
    assert result.ids.tolist() == [0, 1, 0, 1]
    assert result.starts.tolist() == [0, 2, 4]


def test_sampling_id_draws_columns_by_their_probability():
    layer, _ = make_layer("sampling_id", 4, [{}])
    probabilities = [0.1, 0.0, 0.6, 0.3]
    drawn = run(layer, dense([probabilities] * 20000)).ids
    assert np.bincount(drawn, minlength=4) / 20000 == pytest.approx(probabilities, abs=0.02)
    assert run(layer, dense([[0.0, 1, 0, 0], [0, 0, 0, 0]])).ids.tolist() == [1, 3]


def test_print_logs_its_inputs_in_the_places_of_its_format(capfd):
    layer, _ = make_layer("print", 0, [{}] * 2, user_arg="a %s, b %s.")
    x = dense([[1.0, 0.5]], [0, 1])
    assert run(layer, x, Argument(value=np.array([[2.0]]))) is x
    assert "] a value:\n1 0.5 \nsequence pos:\n[0 1 ]\n, b value:\n2 \n.\n" in capfd.readouterr().err
    with pytest.raises(ConfigError, match="contains %s 1 times, but the layer has 2 inputs"):
        make_layer("print", 0, [{}] * 2, user_arg="%s")


def test_print_names_its_inputs_by_default(capfd):
    layer, _ = make_layer("print", 0, [{}])
    run(layer, dense([[1.0, 0.5]]))
    assert "] layer=input0 value:\n1 0.5 \n" in capfd.readouterr().err


def test_a_print_layer_logs_although_nobody_reads_it(capfd):
    config = ModelConfig(type="nn", output_layer_names=["x"])
    config.layers.add(name="x", type="data", size=1)
    config.layers.add(name="p", type="print").inputs.add(input_layer_name="x")
    make_network(config)[0].forward({"x": dense([[3.0]])})
    assert "layer=x value:\n3 \n" in capfd.readouterr().err


def test_every_type_of_these_families_is_tested():
    assert types_of(sequences, selection) == {
        "expand", "kmax_seq_score", "row_conv", "seq_slice", "seqconcat", "seqreshape", "sub_nested_seq", "subseq",
        "eos_id", "multiplex", "sampling_id",
    }  # fmt: skip

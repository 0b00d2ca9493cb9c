"""Projections and operators by hand: windows, tables, slices, and what is refused."""

import numpy as np
import pytest
from layer_checks import dense, ids, make_layer, run

from paddle_base.runtime.errors import ConfigError, DataError


def projection(kind, input_size, output_size, parameter=0, **fields):
    conf = {"type": kind, "name": "p", "input_size": input_size, "output_size": output_size, **fields}
    return {"parameter": parameter, "proj_conf": conf}


def test_padding_rows_begin_with_those_before_the_sequence():
    """Two frames before (-2, -1 frames away) and one after: parameter rows 10, 20 and 30."""
    conf = projection("context", 1, 4, 3, context_start=-2, context_length=4, trainable_padding=True)
    layer, table = make_layer("mixed", 4, [conf])
    table.values[:] = [10, 20, 30]
    result = run(layer, dense([[1.0], [2], [3], [4]], [0, 3, 4]))
    assert result.value.tolist() == [[10, 20, 1, 2], [20, 1, 2, 3], [1, 2, 3, 30], [10, 20, 4, 30]]


def test_id_minus_one_looks_up_a_row_of_zeros():
    layer, table = make_layer("mixed", 2, [projection("table", 3, 2, 6)])
    table.values[:] = range(1, 7)
    result = run(layer, ids([2, -1, 0, 2], [0, 1, 4]))
    assert result.value.tolist() == [[5, 6], [0, 0], [1, 2], [5, 6]]
    assert result.starts.tolist() == [0, 1, 4]
    layer.backward(np.array([[1.0, 2], [9, 9], [3, 4], [5, 6]]), [False])
    assert table.gradients.tolist() == [3, 4, 0, 0, 6, 8]


@pytest.mark.parametrize(
    ("wrong", "remedy"), [(3, "make the size of its data_layer at least 4"), (-2, "-1 means no id")]
)
def test_an_id_outside_of_the_table_is_named(wrong, remedy):
    layer, _ = make_layer("mixed", 2, [projection("table", 3, 2, 6)])
    with pytest.raises(DataError, match=rf"id {wrong} is not in \[-1, 3\); {remedy}"):
        run(layer, ids([0, wrong, -1]))


def test_a_slice_joins_ranges_of_columns():
    layer, _ = make_layer(
        "mixed", 3, [projection("slice", 5, 3, slices=[{"start": 3, "end": 5}, {"start": 0, "end": 1}])]
    )
    assert run(layer, dense([[0.0, 1, 2, 3, 4]])).value.tolist() == [[3, 4, 0]]


def test_a_shared_bias_is_added_to_a_block_of_columns():
    layer, table = make_layer("mixed", 4, [projection("identity", 4, 4)], bias=2, shared_biases=True)
    table.values[:] = [10, 20]
    x = dense([[1.0, 2, 3, 4]])
    assert run(layer, x).value.tolist() == [[11, 12, 23, 24]]
    assert x.value.tolist() == [[1, 2, 3, 4]]


def test_a_bias_reaches_rows_that_lie_column_by_column():
    layer, table = make_layer("mixed", 3, [projection("identity", 3, 3)], bias=3)
    table.values[:] = [10, 20, 30]
    x = dense(np.asfortranarray([[1.0, 2, 3], [4, 5, 6]]))
    assert run(layer, x).value.tolist() == [[11, 22, 33], [14, 25, 36]]


def test_gradients_of_inputs_are_arrays_of_their_own():
    layer, _ = make_layer("mixed", 2, [projection("identity", 2, 2)] * 3)
    run(layer, *[dense([[1.0, 2]])] * 3)
    gradients = layer.backward(np.array([[1.0, 2]]), [True] * 3)
    for one in gradients:
        one += 1
    assert [one.tolist() for one in gradients] == [[[2, 3]]] * 3


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([projection("trans_fc", 2, 2)], "needs a parameter of 4 values and has none"),
        ([projection("trans_fc", 2, 2, 5)], "parameter w0 has 5 values instead of 4"),
        ([projection("spiral", 2, 2)], "projection 'spiral' is not supported yet; supported are context"),
        ([projection("identity", 3, 3)], "its result has width 3 instead of 2"),
        ([projection("identity_offset", 3, 2, offset=2)], "are not all in the input's 3"),
        ([projection("context", 2, 2, context_start=0, context_length=2)], "context_length 2"),
        ([{}], "no projection and no operator"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(inputs, what):
    with pytest.raises(ConfigError, match=what):
        make_layer("mixed", 2, inputs)


def test_inputs_with_different_numbers_of_rows_are_refused():
    layer, _ = make_layer("mixed", 2, [projection("identity", 2, 2)] * 2)
    with pytest.raises(DataError, match="2, 1 rows"):
        run(layer, dense([[1.0, 2], [3, 4]]), dense([[1.0, 2]]))


def test_a_window_needs_sequences():
    layer, _ = make_layer("mixed", 2, [projection("context", 1, 2, context_start=0, context_length=2)])
    with pytest.raises(ConfigError, match="needs an input of sequences"):
        run(layer, dense([[1.0]]))

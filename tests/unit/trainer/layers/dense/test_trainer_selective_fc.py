"""The selective fully connected layer: by hand, against all columns, and finite differences in float64."""

import numpy as np
import pytest
from each import each
from layer_checks import check_gradients, dense, make_layer, run

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.activations import ACTIVATIONS
from trainer.arrays.arguments import Argument, Sparse

SIZE, WIDTH = 5, 3


def selection(*rows):
    offsets = np.cumsum([0, *map(len, rows)])
    return Argument(sparse=Sparse(SIZE, offsets, np.array([column for row in rows for column in row], np.int64)))


def make(has_selection, bias=SIZE):
    inputs = [{"parameter": SIZE * WIDTH}, {"parameter": SIZE * 2}, *[{}] * has_selection]
    return make_layer("selective_fc", SIZE, inputs, bias=bias, has_selected_colums=has_selection)


def rows(count=4):
    rng = np.random.default_rng(count)
    return [dense(rng.normal(size=(count, width)), [0, count]) for width in (WIDTH, 2)]


@each("bias", [0, SIZE])
@each("chosen", [None, [[0, 2]] * 4, [[1, 4], [4, 0], [2, 3], [1, 1]], [[3], [3], [0], [1]]])
def test_gradients_agree_with_finite_differences(chosen, bias):
    given = [*rows(), *([] if chosen is None else [selection(*chosen)])]
    check_gradients(*make(chosen is not None, bias), given)


def test_a_batch_without_rows_has_gradients_of_zero():
    check_gradients(*make(True), [*rows(0), selection()])


def test_selected_columns_are_those_of_the_whole_product():
    chosen = np.array([[1, 4], [4, 0], [2, 3], [1, 2]])
    (full, full_table), (part, part_table) = make(False), make(True)
    part_table.values[:] = full_table.values
    whole = run(full, *rows())
    some = run(part, *rows(), selection(*chosen))
    np.testing.assert_allclose(some.value, np.take_along_axis(whole.value, chosen, axis=1))
    assert some.starts.tolist() == [0, 4]


def test_the_weight_is_stored_transposed():
    layer, table = make_layer("selective_fc", 2, [{"parameter": 6}], has_selected_colums=False)
    table.values[:] = [1, 2, 3, 4, 5, 6]
    assert run(layer, dense([[1.0, 10, 100]])).value.tolist() == [[321, 654]]
    sparse = Argument(sparse=Sparse(3, np.array([0, 2]), np.array([0, 2])))
    assert run(layer, sparse).value.tolist() == [[4, 10]]


def test_rows_that_select_different_numbers_of_columns_are_refused():
    layer, _ = make(True)
    with pytest.raises(DataError, match="equally many columns"):
        run(layer, *rows(), selection([0], [1, 2], [3], [4]))
    with pytest.raises(ConfigError, match=r"sparse_binary_vector\(5\)"):
        run(layer, *rows(), dense(np.ones((4, SIZE))))


def test_a_layer_that_only_selects_is_refused():
    with pytest.raises(ConfigError, match="an input beside the selection"):
        make_layer("selective_fc", SIZE, [{}])


def generating(active_type):
    inputs = [{"parameter": SIZE * WIDTH}, {"parameter": SIZE * 2}, {}]
    flags = {"has_selected_colums": True, "selective_fc_pass_generation": True}
    return make_layer("selective_fc", SIZE, inputs, bias=SIZE, active_type=active_type, **flags)


@pytest.mark.parametrize("active_type", ["", "softmax", "exponential"])
def test_generation_gives_the_selected_columns_as_sparse_rows_of_any_length(active_type):
    chosen = [[1, 4], [], [3, 0, 2], [2, 1]]
    (full, full_table), (part, part_table) = make(False), generating(active_type)
    part_table.values[:] = full_table.values
    whole = run(full, *rows()).value
    found = run(part, *rows(), selection(*chosen))
    assert found.value is None and found.starts.tolist() == [0, 4]
    assert found.sparse.ids.tolist() == [column for row in chosen for column in row]
    activation = ACTIVATIONS[active_type]
    wanted = [activation.forward(whole[row : row + 1, columns])[0] for row, columns in enumerate(chosen) if columns]
    np.testing.assert_allclose(found.sparse.values, np.concatenate(wanted))


def test_a_network_that_generates_trains_as_others_do():
    (plain, plain_table), (part, part_table) = make(True), generating("")
    part_table.values[:] = plain_table.values
    given = [*rows(), selection([0, 2], [1, 4], [4, 0], [2, 3])]
    part.is_training = True
    np.testing.assert_array_equal(run(part, *given).value, run(plain, *given).value)


def test_the_best_columns_of_sparse_rows_are_among_their_own():
    layer, _ = make_layer("maxid", SIZE, [{}], beam_size=2)
    offsets, columns = np.array([0, 3, 3, 4]), np.array([4, 0, 2, 3])
    sparse = Sparse(SIZE, offsets, columns, np.array([-1.0, -5.0, -1.0, -7.0]))
    found = run(layer, Argument(sparse=sparse, starts=np.array([0, 1, 3])))
    assert found.ids.tolist() == [2, 4, -1, -1, 3, -1]
    assert found.starts.tolist() == [0, 2, 6]


def test_the_best_columns_of_rows_come_the_largest_first():
    layer, _ = make_layer("maxid", 3, [{}], beam_size=2)
    assert run(layer, dense([[1.0, 3, 2], [5, 5, 5]])).ids.tolist() == [1, 2, 0, 1]
    with pytest.raises(ConfigError, match="beam_size is 2, but the width of the input is only 1"):
        run(layer, dense([[1.0]]))

"""Layers of arithmetic on rows: a case by hand for each, and finite differences in float64."""

import numpy as np
import pytest
from each import each
from layer_checks import check_gradients, dense, make_layer, run, types_of

from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Sparse
from trainer.layers.dense import arithmetic, products, reshaping, similarity

CLIP = {"clip_conf": {"min": -0.5, "max": 0.8}}

# type: size of the layer, its inputs, sizes of the inputs' rows, other fields
CASES = {
    "addto": (3, [{}] * 3, [3, 3, 3], {"bias": 3}),
    "addto, one input": (3, [{}], [3], {"bias": 3}),
    "concat": (6, [{}] * 3, [3, 1, 2], {}),
    "slope_intercept": (3, [{}], [3], {"slope": 0.7, "intercept": 0.9}),
    "scaling": (3, [{}] * 2, [1, 3], {}),
    "interpolation": (3, [{}] * 3, [1, 3, 3], {}),
    "power": (3, [{}] * 2, [1, 3], {}),
    "sum_to_one_norm": (3, [{}], [3], {}),
    "row_l2_norm": (3, [{}], [3], {}),
    "clip": (3, [CLIP], [3], {}),
    "scale_shift": (3, [{"parameter": 1}], [3], {"bias": 1}),
    "scale_shift without shift": (3, [{"parameter": 1}], [3], {}),
    "prelu": (6, [{"parameter": 6}], [6], {"partial_sum": 1}),
    "prelu, shared": (6, [{"parameter": 2}], [6], {"partial_sum": 3}),
    "trans": (3, [{}], [3], {}),
    "resize": (3, [{}], [6], {}),
    "featmap_expand": (6, [{}], [3], {"num_filters": 2}),
    "featmap_expand by element": (6, [{}], [3], {"num_filters": 2, "user_arg": "as_col_vec"}),
    "cos": (1, [{}] * 2, [3, 3], {"cos_scale": 5}),
    "cos_vm": (2, [{}] * 2, [3, 6], {"cos_scale": 2}),
    "l2_distance": (1, [{}] * 2, [3, 3], {}),
    "dot_prod": (1, [{}] * 2, [3, 3], {}),
    "out_prod": (6, [{}] * 2, [3, 2], {}),
    "tensor": (4, [{"parameter": 24}, {}], [3, 2], {"bias": 4}),
    "conv_shift": (5, [{}] * 2, [5, 3], {}),
    "conv_shift, kernel wider than the row": (3, [{}] * 2, [3, 5], {}),
    "convex_comb": (4, [{}] * 2, [3, 12], {}),
    "factorization_machine": (1, [{"parameter": 8}], [4], {"factor_size": 2}),
}


def make(name, dtype=np.float64):
    size, inputs, _, fields = CASES[name]
    return make_layer(name.split(",")[0].split(" ")[0], size, inputs, dtype=dtype, **fields)


def rows_for(name, count, starts=None):
    rng = np.random.default_rng(len(name) + count)
    rows = [rng.normal(size=(count, width)) for width in CASES[name][2]]
    if name.startswith(("power", "sum_to_one")):
        rows = [np.abs(one) + 0.2 for one in rows]
    return [dense(one, starts) for one in rows]


@each(("count", "starts"), [(4, None), (1, None), (0, None), (6, [0, 2, 2, 5, 6]), (0, [0, 0])])
@each("name", CASES)
def test_gradients_agree_with_finite_differences(name, count, starts):
    check_gradients(*make(name), rows_for(name, count, starts))


@each("name", CASES)
def test_results_keep_single_precision(name):
    layer, _ = make(name, np.float32)
    inputs = [Argument(value=one.value.astype(np.float32)) for one in rows_for(name, 4)]
    result = run(layer, *inputs)
    assert result.value.dtype == np.float32
    for gradient in layer.backward(np.ones_like(result.value), [True] * len(inputs)):
        assert gradient.dtype == np.float32


@each("name", sorted(CASES.keys() - {"trans", "resize"}))
def test_sequences_are_those_of_the_first_input(name):
    layer, _ = make(name)
    assert run(layer, *rows_for(name, 6, [0, 2, 2, 5, 6])).starts.tolist() == [0, 2, 2, 5, 6]


@pytest.mark.parametrize("name", ["trans", "resize"])
def test_other_rows_are_in_no_sequences(name):
    layer, _ = make(name)
    assert run(layer, *rows_for(name, 6, [0, 2, 6])).starts is None


@each(
    ("name", "values", "inputs", "expected"),
    [
        ("addto", [10, 20, 30], [[1, 2, 3], [4, 5, 6], [7, 8, 9]], [22, 35, 48]),
        ("concat", [], [[1, 2, 3], [4], [5, 6]], [1, 2, 3, 4, 5, 6]),
        ("slope_intercept", [], [[0, 1, 10]], [0.9, 1.6, 7.9]),
        ("scaling", [], [[2], [1, 2, 3]], [2, 4, 6]),
        ("interpolation", [], [[0.25], [4, 8, 0], [0, 4, 4]], [1, 5, 3]),
        ("power", [], [[3], [1, 2, 3]], [1, 8, 27]),
        ("sum_to_one_norm", [], [[1, 2, 5]], [0.125, 0.25, 0.625]),
        ("row_l2_norm", [], [[2, 3, 6]], [2 / 7, 3 / 7, 6 / 7]),
        ("clip", [], [[-1, 0.5, 3]], [-0.5, 0.5, 0.8]),
        ("scale_shift", [3, 0.5], [[1, 2, -1]], [3.5, 6.5, -2.5]),
        ("prelu, shared", [0.1, 0.5], [[-1, 2, -3, -4, 5, 0]], [-0.1, 2, -0.3, -2, 5, 0]),
        ("featmap_expand", [], [[1, 2, 3]], [1, 2, 3, 1, 2, 3]),
        ("featmap_expand by element", [], [[1, 2, 3]], [1, 1, 2, 2, 3, 3]),
        ("cos", [], [[1, 0, 0], [3, 4, 0]], [3]),
        ("cos_vm", [], [[1, 0, 0], [3, 4, 0, 0, 0, 7]], [1.2, 0]),
        ("l2_distance", [], [[1, 2, 3], [3, 5, 9]], [7]),
        ("dot_prod", [], [[1, 2, 3], [4, 5, 6]], [32]),
        ("out_prod", [], [[1, 2, 3], [4, 5]], [4, 5, 8, 10, 12, 15]),
        ("conv_shift", [], [[1, 2, 3, 4, 5], [10, 1, 100]], [251, 312, 423, 534, 145]),
        ("convex_comb", [], [[1, 10, 100], [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]], [951, 162, 273, 384]),
        # v = (1,2), (3,4), (5,6), (7,8): x = (1, 0, 2, 1) has pairs 17 * 2 + 23 * 1 + 83 * 2
        ("factorization_machine", range(1, 9), [[1, 0, 2, 1]], [223]),
    ],
)
def test_by_hand(name, values, inputs, expected):
    layer, table = make(name)
    table.values[:] = list(values)
    result = run(layer, *[dense([[float(number) for number in row]]) for row in inputs])
    assert result.value == pytest.approx(np.array([expected]))


def test_trans_and_resize_by_hand():
    x = dense([[1.0, 2, 3], [4, 5, 6]])
    assert run(make("trans")[0], x).value.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert run(make("resize")[0], dense([[1.0, 2, 3, 4, 5, 6]])).value.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(DataError, match="1 rows of 4 numbers do not fill rows of 3"):
        run(make("resize")[0], dense([[1.0, 2, 3, 4]]))


def test_tensor_s_parameter_is_one_matrix_for_each_column():
    layer, table = make_layer("tensor", 2, [{"parameter": 12}, {}])
    table.values[:] = range(12)
    x, y = np.array([[1.0, 2, 3], [0, 1, 0]]), np.array([[5.0, 7], [1, 1]])
    matrices = np.arange(12.0).reshape(2, 3, 2)
    expected = [[x[row] @ matrices[k] @ y[row] for k in range(2)] for row in range(2)]
    np.testing.assert_allclose(run(layer, dense(x), dense(y)).value, expected)


def test_cosine_with_one_row_compares_every_row_with_it():
    layer, table = make("cos")
    x, y = np.random.default_rng(1).normal(size=(4, 3)), np.array([[1.0, 2, 3]])
    expected = 5 * (x @ y[0]) / np.linalg.norm(x, axis=1) / np.linalg.norm(y)
    np.testing.assert_allclose(run(layer, dense(x), dense(y)).value[:, 0], expected)
    check_gradients(layer, table, [dense(x), dense(y)])


def test_l2_distance_of_equal_rows_has_a_zero_gradient():
    layer, _ = make("l2_distance")
    x = dense([[1.0, 2, 3]])
    assert run(layer, x, x).value.tolist() == [[0]]
    assert [one.tolist() for one in layer.backward(np.ones((1, 1)), [True, True])] == [[[0, 0, 0]]] * 2


@pytest.mark.parametrize("values", [None, [0.5, -1, 2, 1]])
def test_factorization_machine_of_sparse_rows_equals_that_of_dense_ones(values):
    sparse = Sparse(4, np.array([0, 2, 2, 4]), np.array([1, 3, 0, 2]), None if values is None else np.array(values))
    layer, table = make("factorization_machine")
    check_gradients(layer, table, [Argument(sparse=sparse)])
    result = run(layer, Argument(sparse=sparse)).value
    np.testing.assert_allclose(result, run(layer, dense(sparse.to_dense(np.float64))).value)


def test_addto_gives_each_input_a_gradient_of_its_own():
    layer, _ = make("addto")
    run(layer, *rows_for("addto", 2))
    gradients = layer.backward(np.ones((2, 3)), [False, True, True])
    gradients[1] += 1
    assert gradients[0] is None
    assert gradients[2].tolist() == [[1, 1, 1]] * 2


@each(
    ("name", "widths", "what"),
    [
        ("addto", [3, 2, 3], "an input has width 2"),
        ("concat", [3, 3, 3], "9 columns instead of 6"),
        ("out_prod", [3, 3], "width 3 and 3 do not give size 6"),
        ("conv_shift", [5, 2], "do not give size 5"),
        ("l2_distance", [3, 2], "do not give size 1"),
        ("tensor", [3, 3], "do not give size 4"),
        ("featmap_expand", [4], "2 times width 4"),
        ("cos_vm", [3, 3], "an input has width 3 instead of 6"),
    ],
)
def test_widths_that_do_not_fit_are_refused(name, widths, what):
    layer, _ = make(name)
    with pytest.raises(ConfigError, match=what):
        run(layer, *[dense(np.ones((2, width))) for width in widths])


def test_different_numbers_of_rows_are_refused():
    layer, _ = make("concat")
    with pytest.raises(
        DataError,
        match=r"2, 1, 2 rows; these numbers must be equal; .*pooling_layer",
    ):
        run(layer, *[dense(np.ones(shape)) for shape in [(2, 3), (1, 1), (2, 2)]])


def test_the_table_has_every_type_of_these_families():
    checked = {name.split(",")[0].split(" ")[0] for name in CASES}
    assert checked == types_of(arithmetic, products, reshaping, similarity)

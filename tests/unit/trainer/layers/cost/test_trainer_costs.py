"""Cost layers: a case by hand for each, and finite differences in float64."""

import math

import numpy as np
import pytest
from each import each
from layer_checks import check_gradients, dense, ids, make_layer, make_network, run, types_of

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Sparse
from trainer.layers.cost import class_sampling, costs, ranking
from trainer.layers.sampling import SampleStream

ROWS, WIDTH = 6, 4
STARTS = [0, 2, 2, 3, 6]


def sparse(values=None):
    return Argument(sparse=Sparse(WIDTH, np.array([0, 1, 1, 3, 7, 8, 8]), np.array([2, 0, 3, 0, 1, 2, 3, 1]), values))


def normal(rng):
    return rng.normal(size=(ROWS, WIDTH)) * 2


def probabilities(rng):
    return rng.random((ROWS, WIDTH)) * 0.8 + 0.1


def narrow(rng):
    return rng.normal(size=(ROWS, 1)) * 2


def labels(rng):
    return ids(rng.integers(0, WIDTH, ROWS))


def bits(rng):
    return ids(rng.integers(0, 2, ROWS))


def matrix(rng):
    return dense(normal(rng))


def shares(rng):
    return dense(rng.random((ROWS, WIDTH)))


# type: prediction, label, fields
CASES = {
    "multi-class-cross-entropy": (probabilities, labels, {}),
    "multi_class_cross_entropy_with_selfnorm": (probabilities, labels, {"softmax_selfnorm_alpha": 0.3}),
    "soft_binary_class_cross_entropy": (probabilities, shares, {}),
    "multi_binary_label_cross_entropy, ids": (probabilities, labels, {}),
    "multi_binary_label_cross_entropy, sparse": (probabilities, lambda rng: sparse(), {}),
    "multi_binary_label_cross_entropy": (probabilities, shares, {}),
    "square_error": (normal, matrix, {}),
    "square_error, sparse label": (normal, lambda rng: sparse(np.arange(8.0)), {}),
    "huber_regression": (normal, matrix, {"delta": 0.7}),
    "huber_classification": (narrow, bits, {}),
    "huber": (narrow, bits, {}),
    "smooth_l1": (normal, matrix, {}),
}


def make(name, weighted=False, **extra):
    _, _, fields = CASES[name]
    return make_layer(name.split(",")[0], 1, [{}] * (3 if weighted else 2), **fields, **extra)


def inputs_for(name, starts=None, rows=ROWS):
    prediction, label, _ = CASES[name]
    rng = np.random.default_rng(len(name))
    return [dense(prediction(rng)[:rows], starts), label(rng)]


@each("weighted", [False, True])
@each("name", CASES)
def test_gradients_agree_with_finite_differences(name, weighted):
    inputs = inputs_for(name)
    if weighted:
        inputs.append(dense(np.random.default_rng(1).random((ROWS, 1))))
    check_gradients(*make(name, weighted), inputs, varied=[0])


@each("name", CASES)
def test_frames_of_sequences_cost_one_by_one(name):
    layer, _ = make(name)
    plain, of_sequences = inputs_for(name), inputs_for(name, STARTS)
    result = run(layer, *of_sequences)
    np.testing.assert_array_equal(result.value, run(layer, *plain).value)
    assert result.value.shape == (ROWS, 1)
    assert result.starts.tolist() == STARTS


LN = math.log


@each(
    ("name", "prediction", "label", "fields", "expected"),
    [
        ("multi_binary_label_cross_entropy", [0.2, 0.7], dense([[0.4, 0.6]]), {}, -LN(0.8) - LN(0.7)),
        ("multi_binary_label_cross_entropy", [0.2, 0.7], ids([0]), {}, -LN(0.2) - LN(0.3)),
        ("huber_regression", [1.0, 2.0], dense([[4.0, 1]]), {"delta": 2}, 2 * (3 - 1) + 0.5),
        ("huber_classification", [0.25], ids([1]), {}, 0.75**2),
        ("smooth_l1", [1.0, 2.0], dense([[4.0, 1.5]]), {}, 2.5 + 0.125),
    ],
)
def test_by_hand(name, prediction, label, fields, expected):
    layer, _ = make_layer(name, 1, [{}] * 2, **fields)
    assert run(layer, dense([prediction]), label).value[0, 0] == pytest.approx(expected)


def test_a_sparse_label_sets_columns_whatever_their_values():
    layer, _ = make_layer("multi_binary_label_cross_entropy", 1, [{}] * 2)
    p = dense(probabilities(np.random.default_rng(2)))
    with_values = run(layer, p, sparse(np.zeros(8))).value
    np.testing.assert_array_equal(with_values, run(layer, p, sparse()).value)


@pytest.mark.parametrize("starts", [STARTS, [0, 0], [0]])
def test_sum_cost_adds_up_each_row(starts):
    layer, table = make_layer("sum_cost", 1, [{}])
    x = np.arange(4.0 * starts[-1]).reshape(starts[-1], 4)
    np.testing.assert_array_equal(run(layer, dense(x, starts)).value, x.sum(axis=1, keepdims=True))
    check_gradients(layer, table, [dense(x, starts)])


@pytest.mark.parametrize(
    ("label", "what"),
    [
        (ids([0, 4, 1, 1, 1, 1]), r"label 4 is not in \[0, 4\)"),
        (
            ids([0, 1]),
            r"the label has 2 rows, but the prediction has 6; .*: pooling_layer, last_seq",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused(label, what):
    layer, _ = make("multi-class-cross-entropy")
    with pytest.raises(DataError, match=what):
        run(layer, inputs_for("multi-class-cross-entropy")[0], label)


# ----- Orders -----


@pytest.mark.parametrize("label", [ids([1, 0, 1, 1, 0, 0]), dense([[1.0], [0], [0.5], [1], [0.2], [0]])])
@pytest.mark.parametrize("weighted", [False, True])
def test_rank_cost_gradients_agree_with_finite_differences(label, weighted):
    rng = np.random.default_rng(5)
    inputs = [dense(narrow(rng)), dense(narrow(rng)), label] + [dense(rng.random((ROWS, 1)))] * weighted
    check_gradients(*make_layer("rank-cost", 1, [{}] * len(inputs)), inputs, varied=[0, 1])


def test_rank_cost_ignores_its_coeff():
    config = ModelConfig(type="nn", output_layer_names=["cost"])
    for name in ("x", "y", "label"):
        config.layers.add(name=name, type="data", size=1)
    for name, source in (("left", "x"), ("right", "y")):
        layer = config.layers.add(name=name, type="fc", size=1)
        layer.inputs.add(input_layer_name=source, input_parameter_name=f"w_{name}")
        config.parameters.add(name=f"w_{name}", size=1)
    cost = config.layers.add(name="cost", type="rank-cost", size=1, coeff=4)
    for name in ("left", "right", "label"):
        cost.inputs.add(input_layer_name=name)
    network, table = make_network(config, scale=0)
    network.forward({"x": dense([[1.0]]), "y": dense([[2.0]]), "label": ids([1])})
    assert network.cost() == pytest.approx(LN(2))
    network.backward()
    assert table.gradients == pytest.approx([-0.5 * 1, 0.5 * 2])


def test_sum_cost_ignores_its_coeff():
    """It scaled the gradient; v0.10's has no coeff, though its message has one."""
    config = ModelConfig(type="nn", output_layer_names=["cost"])
    config.layers.add(name="x", type="data", size=2)
    config.layers.add(name="y", type="fc", size=1).inputs.add(input_layer_name="x", input_parameter_name="w")
    config.parameters.add(name="w", size=2)
    config.layers.add(name="cost", type="sum_cost", size=1, coeff=0.5).inputs.add(input_layer_name="y")
    network, table = make_network(config, scale=0)
    network.forward({"x": dense([[1.0, 3.0]])})
    network.backward()
    assert table.gradients.tolist() == [1, 3]


LISTS = [0, 4, 4, 7]
TRUTH = np.array([[0.0], [2], [1], [0], [3], [3], [0]])
SCORES = np.array([[0.3], [-0.2], [1.5], [0.1], [-1.0], [0.7], [2.0]])


def dcg(truths):
    return sum((2**truth - 1) / LN(place + 2) for place, truth in enumerate(truths))


def test_lambda_cost_is_the_ndcg_of_each_list():
    layer, _ = make_layer("lambda_cost", 1, [{}] * 2, NDCG_num=2, max_sort_size=-1)
    result = run(layer, dense(SCORES, LISTS), dense(TRUTH, LISTS))
    expected = [dcg([1, 0]) / dcg([2, 1])] * 4 + [dcg([0, 3]) / dcg([3, 3])] * 3
    assert result.value[:, 0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("truth", "starts", "what"),
    [([[1.0], [2], [3]], [0, 1, 3], "a list has 1 documents, less than NDCG_num 2"), ([[0.0]] * 3, [0, 3], "over 0")],
)
def test_lists_without_an_order_are_refused(truth, starts, what):
    layer, _ = make_layer("lambda_cost", 1, [{}] * 2, NDCG_num=2, max_sort_size=-1)
    with pytest.raises(DataError, match=what):
        run(layer, dense([[1.0], [2], [3]], starts), dense(truth, starts))


# ----- Many classes -----


@each("fields", [{}, {"neg_sampling_dist": [0.1, 0.2, 0.3, 0.4, 0]}])
@each("weighted", [False, True])
@each(
    "label",
    [
        ids([0, 4, 2, 2, 1, 3]),
        Argument(sparse=Sparse(5, *map(np.array, ([0, 1, 3, 4, 5, 6, 8], [0, 1, 4, 2, 2, 3, 1, 0])))),
    ],
)
def test_nce_gradients_agree_with_finite_differences(fields, weighted, label):
    inputs = [{"parameter": 5 * WIDTH}, {"parameter": 5 * 2}, *[{}] * (1 + weighted)]
    layer, table = make_layer(
        "nce", 1, inputs, bias=5, num_classes=5, num_neg_samples=3, active_type="sigmoid", **fields
    )
    rng = np.random.default_rng(3)
    given = [dense(normal(rng)), dense(rng.normal(size=(ROWS, 2))), label]
    given += [dense(rng.random((ROWS, 1)))] * weighted
    check_gradients(layer, table, given, varied=[0, 1])


def test_nce_draws_other_samples_in_every_batch():
    layer, _ = make_layer("nce", 1, [{"parameter": 1000}, {}], num_classes=1000, active_type="sigmoid")
    x, label = dense([[1.0]] * 3), ids([0, 1, 2])
    assert (run(layer, x, label).value != run(layer, x, label).value).all()


def test_the_sample_stream_is_minstd_rand0():
    assert SampleStream(1).states(10000)[-1] == 1043618065  # the value that the C++ standard demands
    pieces = SampleStream(1)
    assert [*pieces.states(3), *pieces.states(1), *pieces.states(2)] == SampleStream(1).states(6).tolist()


def test_samples_are_spread_evenly():
    counts = np.bincount(SampleStream().integers(30000, 3)) / 30000
    assert counts == pytest.approx(1 / 3, abs=0.02)
    fractions = SampleStream().fractions(10000)
    assert fractions.mean() == pytest.approx(0.5, abs=0.02)
    assert 0 <= fractions.min() <= fractions.max() < 1


@pytest.mark.parametrize("classes", [3, 4, 5, 8, 9])
def test_hsigmoid_gradients_agree_with_finite_differences(classes):
    inputs = [{"parameter": (classes - 1) * WIDTH}, {"parameter": (classes - 1) * 2}, {}]
    layer, table = make_layer("hsigmoid", 1, inputs, bias=classes - 1, num_classes=classes)
    rng = np.random.default_rng(classes)
    label = ids(rng.integers(0, classes, ROWS))
    check_gradients(layer, table, [dense(normal(rng)), dense(rng.normal(size=(ROWS, 2))), label], varied=[0, 1])


def test_hsigmoid_s_probabilities_of_classes_on_full_paths_add_up_to_one():
    layer, _ = make_layer("hsigmoid", 1, [{"parameter": 7 * WIDTH}, {}], 7, num_classes=8)
    x = np.repeat(normal(np.random.default_rng(8))[:1], 8, axis=0)
    assert np.exp(-run(layer, dense(x), ids(range(8))).value).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "inputs", "fields", "what"),
    [
        ("nce", [{}, {}], {"num_classes": 3}, "needs one or more inputs with parameters, and then a label"),
        ("nce", [{"parameter": 4}, {}], {"num_classes": 3}, "no multiple of 3"),
        ("nce", [{"parameter": 3}, {}], {}, "num_classes and num_neg_samples"),
        ("nce", [{"parameter": 3}, {}], {"num_classes": 3, "neg_sampling_dist": [1.0]}, "neg_sampling_dist has 1"),
        ("hsigmoid", [{"parameter": 3}, {}], {"num_classes": 2}, "num_classes over 2"),
    ],
)
def test_configs_that_do_not_fit_are_refused(kind, inputs, fields, what):
    with pytest.raises(ConfigError, match=what):
        make_layer(kind, 1, inputs, **fields)


def test_the_tables_have_every_cost():
    checked = {name.split(",")[0] for name in CASES} | {"sum_cost", "rank-cost", "lambda_cost", "nce", "hsigmoid"}
    assert checked == types_of(costs, ranking, class_sampling)

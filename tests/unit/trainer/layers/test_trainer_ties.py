"""Equal numbers stand as std::sort, std::partial_sort and std::nth_element of the GNU C++ library leave them.

The orders of KEYS were printed by a program that g++ 12 compiled; it sorts pairs (key, position) by the key alone.
"""

import numpy as np
import pytest
from layer_checks import dense, ids, make_layer, run

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from trainer.arrays.arguments import Sparse
from trainer.evaluators import make_evaluators
from trainer.layers.ties import find_best, mark_largest, select_largest, sort_all, sort_largest


def read(text):
    return [int(one) for one in text.split()]


KEYS = [float(one) for one in read("2 2 1 3 3 3 2 3 0 2 1 3 0 0 1 3 1 3 1 2 2 2 3 3 3 2 3 1 2 0 0 1 2 2 3 3 2 1 1 0")]
SORTED = read(
    "35 3 4 5 34 7 22 17 23 11 26 15 24 28 21 25 1 32 33 36 19 20 0 9 6 18 16 14 38 27 10 37 31 2 39 8 30 29 12 13"
)
BEST_12 = read("3 4 23 7 11 24 17 26 5 34 22 15")
CHOSEN_12 = read("7 24 15 26 11 23 17 22 34 35 3 5")


def test_ties_stand_as_the_library_of_the_original_leaves_them():
    assert sort_all(KEYS) == SORTED
    assert sort_largest(KEYS, 12)[:12] == BEST_12
    assert select_largest(KEYS, 12) == CHOSEN_12
    assert np.flatnonzero(mark_largest(np.array(KEYS), 12)).tolist() == sorted(BEST_12)


@pytest.mark.parametrize("keys", [[], [1.0], [2.0, 1.0, 3.0], [float(i * 7 % 101) for i in range(101)]], ids=len)
def test_distinct_numbers_have_one_order(keys):
    order = sorted(range(len(keys)), key=lambda place: -keys[place])
    assert sort_all(keys) == sort_largest(keys, 999) == order
    for count in (1, 2, 50):
        assert sort_largest(keys, count)[:count] == order[:count]
        assert sorted(select_largest(keys, count)) == sorted(order[:count])


def test_up_to_sixteen_equal_numbers_keep_their_order_in_a_full_sort_only():
    assert sort_all([1.0] * 16) == list(range(16)) != sort_all([1.0] * 17)[:16]
    assert sort_largest([1.0] * 5, 4)[:4] == [1, 3, 0, 2]


def test_only_rows_with_ties_are_sorted_so():
    p = np.array([KEYS, [*range(40)]])
    assert find_best(p, 12).tolist() == [BEST_12, list(range(39, 27, -1))]
    assert find_best(np.array([[0.1, 0.4, 0.4, 0.1], [0.2, 0.1, 0.3, 0.4]]), 2).tolist() == [[2, 1], [3, 2]]
    assert find_best(np.zeros((0, 4)), 2).shape == (0, 2)


def test_maxid_with_a_beam_and_kmax_take_this_order():
    layer, _ = make_layer("maxid", 1, [{}], beam_size=12)
    assert run(layer, dense([KEYS])).ids.tolist() == BEST_12
    row = Sparse(40, np.array([0, 40]), np.arange(40, dtype=np.int32), np.array(KEYS))
    assert run(layer, dense([[0.0]]).__class__(sparse=row)).ids.tolist() == BEST_12
    layer, _ = make_layer("kmax_seq_score", 0, [{}], beam_size=12)
    assert run(layer, dense(np.array(KEYS)[:, None], [0, 40])).value.tolist() == [BEST_12]


@pytest.mark.parametrize("most", [-1, 12])
def test_lambda_cost_gradients_rank_equal_documents_in_this_order(most):
    """The gradient is that of the loops of v0.10 over the documents in the recorded order."""
    layer, _ = make_layer("lambda_cost", 1, [{}] * 2, NDCG_num=5, max_sort_size=most)
    scores, truth = np.random.default_rng(1).normal(size=40), np.array(KEYS)
    run(layer, dense(scores[:, None], [0, 0, 40]), dense(truth[:, None], [0, 0, 40]))
    (gradient, _) = layer.backward(np.ones((40, 1)), [True, False])
    order, first = (SORTED, 40) if most == -1 else (sort_largest(KEYS, 12), 12)
    assert order[:12] == (SORTED[:12] if most == -1 else BEST_12)
    best = sum((2.0 ** truth[order[i]] - 1) / np.log(i + 2) for i in range(5))
    expected = np.zeros(40)
    for i in range(first):
        for j in range(i + 1, 40):
            one, other = order[i], order[j]
            distance = np.log(i + 2) - (np.log(j + 2) if j < first else 0)
            change = abs((2.0 ** truth[one] - 2.0 ** truth[other]) / distance)
            part = -change / (1 + np.exp(scores[one] - scores[other])) / best
            expected[one] += part
            expected[other] -= part
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-9, atol=1e-12)


def test_lambda_cost_measures_equal_scores_in_this_order():
    layer, _ = make_layer("lambda_cost", 1, [{}] * 2, NDCG_num=12, max_sort_size=-1)
    truth = np.zeros(40)
    truth[BEST_12[0]] = 1  # the gain is that of the first place
    result = run(layer, dense(np.array(KEYS)[:, None], [0, 40]), dense(truth[:, None], [0, 40]))
    np.testing.assert_allclose(result.value, 1)


def test_evaluators_take_this_order():
    def measure(kind, *inputs, **fields):
        names = [f"i{number}" for number in range(len(inputs))]
        (evaluator,) = make_evaluators([EvaluatorConfig(name="e", type=kind, input_layers=names, **fields)])
        return evaluator.measure(dict(zip(names, inputs, strict=True)))

    prediction = dense([KEYS] * 2)
    labels = ids([BEST_12[-1], next(place for place in range(40) if KEYS[place] == 3 and place not in BEST_12)])
    assert measure("classification_error", prediction, labels, top_k=12).total == 1
    clicks = np.zeros(40)
    clicks[SORTED[3]] = 1  # behind three others of its score
    share = measure("rankauc", dense(np.array(KEYS)[:, None], [0, 40]), dense(clicks[:, None]))
    equal = [KEYS.count(key) for key in (3.0, 2.0, 1.0, 0.0)]
    running = [(i + 1) - (i >= 3) for i in range(equal[0])] + [i + 1 for count in equal[1:] for i in range(count)]
    area = (equal[0] - 1) / 2 + sum(equal[1:])
    assert share.total == pytest.approx(area / sum(running))

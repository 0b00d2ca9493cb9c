"""A config of nearly every layer that is not of images: what the language writes, the network builds and trains."""

import numpy as np
import pytest
from each import each
from layer_checks import check_cost_gradients

from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config.scripts.parse import parse_config
from trainer.network.network import Network

CONFIG = """
from paddle.trainer_config_helpers import *

settings(batch_size=4, learning_rate=0.1)
x, y, weight = data_layer('x', 6), data_layer('y', 6), data_layer('weight', 1)
label, bit, order = data_layer('label', 3), data_layer('bit', 2), data_layer('order', 1)
words, frames, nested = data_layer('words', 9), data_layer('frames', 6), data_layer('nested', 6)
offsets, sizes = data_layer('offsets', 3), data_layer('sizes', 3)
begins, ends, chosen = data_layer('begins', 2), data_layer('ends', 2), data_layer('chosen', 2)

a, b, c = fc_layer(x, 6), fc_layer(y, 6), fc_layer(x, 6, act=SigmoidActivation())
w = fc_layer(x, 1, act=SigmoidActivation())
s, n, e = fc_layer(frames, 6), fc_layer(nested, 6), embedding_layer(words, 6)

with mixed_layer(size=6) as mixed:
    mixed += full_matrix_projection(a)
    mixed += trans_full_matrix_projection(b)
    mixed += identity_projection(a)
    mixed += dotmul_projection(b)
    mixed += scaling_projection(a)
    mixed += dotmul_operator(a, b, scale=2)

results = [
    mixed,
    mixed_layer(size=4, input=[identity_projection(a, offset=1, size=4)], bias_attr=True),
    mixed_layer(input=[context_projection(s, 3)]),
    mixed_layer(input=[context_projection(e, 4, padding_attr=False)]),
    addto_layer([a, b], bias_attr=True),
    concat_layer([a, b]),
    concat_layer([identity_projection(a), full_matrix_projection(b, size=4)], bias_attr=True),
    interpolation_layer([a, b], w),
    power_layer(c, w),
    scaling_layer(a, w),
    cos_sim(a, b),
    cos_sim(a, fc_layer(y, 12), size=2),
    sum_to_one_norm_layer(c),
    row_l2_norm_layer(a),
    conv_shift_layer(a, fc_layer(y, 5)),
    tensor_layer(a, b, 4),
    slope_intercept_layer(a, slope=0.7, intercept=0.9),
    linear_comb_layer(fc_layer(x, 2), fc_layer(y, 12)),
    l2_distance_layer(a, b),
    dot_prod_layer(a, b),
    out_prod_layer(a, b),
    clip_layer(a, -0.5, 0.5),
    scale_shift_layer(a),
    factorization_machine(a, factor_size=3),
    repeat_layer(a, 2),
    repeat_layer(a, 2, as_row_vector=False),
    resize_layer(a, 3),
    prelu_layer(a, num_channels=6),
    multiplex_layer([label, a, b, a]),
    gated_unit_layer(a, 4),
    expand_layer(a, frames),
    expand_layer(first_seq(n, agg_level=AggregateLevel.TO_SEQUENCE), nested, expand_level=ExpandLevel.FROM_SEQUENCE),
    seq_concat_layer(s, e),
    seq_reshape_layer(s, 3),
    sub_seq_layer(s, offsets, sizes),
    row_conv_layer(s, 3),
    seq_slice_layer(s, begins, ends),
    seq_slice_layer(s, kmax_seq_score_layer(fc_layer(frames, 1, name='scores'), beam_size=2), None),
    sub_nested_seq_layer(n, chosen),
    first_seq(s, stride=2),
    last_seq(s),
    last_seq(n, agg_level=AggregateLevel.TO_SEQUENCE),
]
for pooling in (MaxPooling(), AvgPooling(), SumPooling(), SquareRootNPooling()):
    results += [
        pooling_layer(s, pooling_type=pooling, bias_attr=True),
        pooling_layer(n, pooling_type=pooling, agg_level=AggregateLevel.TO_SEQUENCE),
        pooling_layer(s, pooling_type=pooling, stride=2),
    ]

inputs(x, y, weight, label, bit, order, words, frames, nested, offsets, sizes, begins, ends, chosen)
outputs(
    classification_cost(fc_layer(x, 3, act=SoftmaxActivation()), label, weight),
    cross_entropy_with_selfnorm(fc_layer(x, 3, act=ExpActivation()), label),
    square_error_cost(a, y),
    multi_binary_label_cross_entropy(fc_layer(x, 3, act=SigmoidActivation()), label),
    huber_regression_cost(a, y),
    huber_classification_cost(fc_layer(x, 1), bit),
    smooth_l1_cost(a, y),
    rank_cost(fc_layer(x, 1), fc_layer(y, 1), order),
    nce_layer([a, b], label, num_neg_samples=2),
    hsigmoid([a], label, num_classes=3),
    *[sum_cost(one) for one in results])
"""

STARTS, NESTED, SUB_STARTS = [0, 3, 5, 6, 10], [0, 4, 6, 7, 12], [0, 2, 4, 5, 6, 7, 10, 12]


def make_batch():
    rng = np.random.default_rng(0)

    def dense(rows, width, **layout):
        return Argument(value=rng.normal(size=(rows, width)), **layout)

    def numbers(rows):
        return Argument(value=np.array(rows, float))

    return {
        "x": dense(4, 6),
        "y": dense(4, 6),
        "weight": Argument(value=rng.random((4, 1))),
        "label": Argument(ids=np.array([2, 0, 1, 1])),
        "bit": Argument(ids=np.array([1, 0, 0, 1])),
        "order": Argument(ids=np.array([0, 1, 1, 0])),
        "words": Argument(ids=rng.integers(0, 9, 10), starts=np.array(STARTS)),
        "frames": dense(10, 6, starts=np.array(STARTS)),
        "nested": dense(12, 6, starts=np.array(NESTED), sub_starts=np.array(SUB_STARTS)),
        "offsets": Argument(ids=np.array([0, 1, 0, 1])),
        "sizes": Argument(ids=np.array([2, 1, 1, 3])),
        "begins": numbers([[0, 1], [0, -1], [-1, 0], [2, 0]]),
        "ends": numbers([[1, 2], [1, -1], [-1, 0], [3, 0]]),
        "chosen": numbers([[1, 0], [0, -1], [-1, -1], [1, 1]]),
    }


def test_gradients_of_a_whole_config_agree_with_finite_differences(tmp_path):
    path = tmp_path / "trainer_config.py"
    path.write_text(CONFIG)
    config = parse_config(str(path), "").model_config
    table = ParameterTable(config.parameters, np.float64)
    rng = np.random.default_rng(1)
    table.values[:] = rng.normal(size=table.values.size) * 0.3
    network, batch = Network(config, table), make_batch()
    check_cost_gradients(network, table, lambda: network.forward(batch, is_training=True), rng, rel=1e-6)
    for parameter in table:
        assert (parameter.gradient != 0).any() == ("scores" not in parameter.name), parameter.name


ROWS_APART = """
from paddle.trainer_config_helpers import *

settings(batch_size=1)
x, y, label = data_layer('x', 8), data_layer('y', 8), data_layer('label', 5)
z, s, m = data_layer('z', 32), data_layer('s', 24), data_layer('m', 8)
"""


@each(
    "call",
    [
        "fc_layer([x, y], 3)",
        "fc_layer([y, x], 3)",
        "mixed_layer(size=3, input=[full_matrix_projection(x), full_matrix_projection(y)])",
        "addto_layer([x, y])",
        "concat_layer([x, y])",
        "lstm_step_layer(z, y, size=8, bias_attr=False)",
        "gru_step_layer(s, y, size=8)",
        "hsigmoid([x, y], label)",
        "nce_layer([x, y], label)",
        "cross_entropy(fc_layer(x, 5, act=SoftmaxActivation()), label, weight=fc_layer(y, 1))",
        "nce_layer(y, label)",  # the label's rows were taken as those of the input
    ],
)
@pytest.mark.parametrize("rows", [1, 2])
def test_inputs_of_different_numbers_of_rows_are_refused_with_the_layers_that_help(call, rows, tmp_path):
    """A sequence beside a plain row ended fc_layer in a traceback, or one row was added to every frame in silence."""
    (tmp_path / "config.py").write_text(f"{ROWS_APART}outputs({call})")
    config = parse_config(str(tmp_path / "config.py")).model_config
    table = ParameterTable(config.parameters, np.float64)
    one = {"x": 8, "z": 32, "s": 24}
    batch = {name: Argument(value=np.ones((3, width)), starts=np.array([0, 1, 3])) for name, width in one.items()}
    batch |= {"y": Argument(value=np.ones((rows, 8))), "label": Argument(ids=np.zeros(3, np.int32))}
    with pytest.raises(DataError, match=r"rows.*(pooling_layer, last_seq or first_seq|equal)"):
        Network(config, table).forward(batch)

"""Layers whose inputs have different numbers of rows."""

import numpy as np
import pytest
from each import each
from layer_checks import make_network

from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument
from trainer.config.scripts.parse import parse_config

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
    one = {"x": 8, "z": 32, "s": 24}
    batch = {name: Argument(value=np.ones((3, width)), starts=np.array([0, 1, 3])) for name, width in one.items()}
    batch |= {"y": Argument(value=np.ones((rows, 8))), "label": Argument(ids=np.zeros(3, np.int32))}
    with pytest.raises(DataError, match=r"rows.*(pooling_layer, last_seq or first_seq|equal)"):
        make_network(config)[0].forward(batch)

"""Gradients of activations, of fc layers and of a network whose costs share a layer, against finite differences."""

import numpy as np
import pytest
from each import each
from layer_checks import check_cost_gradients, check_gradients, compare, dense, make_layer, make_network

from paddle.trainer_config_helpers import *
from trainer.arrays.activations import ACTIVATIONS
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.network.check_grads import CheckedVariable

ROWS, WIDTH, SIZE = 5, 4, 3
SPARSE = [[0, 3, 3, 5, 7, 8], [0, 2, 2, 1, 3, 3, 3, 0]]  # ids repeated within a row; row 1 is empty


@each("kind", sorted(ACTIVATIONS.keys() - {"sequence_softmax"}))  # that one has a test of its own
def test_gradients_of_activations_agree_with_finite_differences(kind):
    rng = np.random.default_rng(len(kind))
    z, c = rng.normal(size=(2, ROWS, WIDTH))
    if kind in ("log", "sqrt", "reciprocal"):
        z = np.abs(z) + 0.1
    activation = ACTIVATIONS[kind]
    gradient = activation.backward(c.copy(), activation.forward(z.copy()), z.copy())
    variable = CheckedVariable("z", z, gradient)
    compare(lambda: float((activation.forward(z.copy()) * c).sum()), [variable], rng, rel=5e-6, abs=1e-7)


@each(
    ("kinds", "size"),
    [("dense", SIZE), ("zeros_and_ones", SIZE), ("zeros_and_ones", 1), ("sparse", SIZE), ("dense sparse dense", SIZE)],
)
def test_gradients_of_fc_agree_with_finite_differences(kinds, size):
    rng = np.random.default_rng(3)
    rows, columns = map(np.array, SPARSE)
    made = {
        "dense": lambda: dense(rng.normal(size=(ROWS, WIDTH))),
        "zeros_and_ones": lambda: Argument(sparse=Sparse(WIDTH, rows, columns)),
        "sparse": lambda: Argument(sparse=Sparse(WIDTH, rows, columns, rng.normal(size=len(columns)))),
    }
    inputs = [made[kind]() for kind in kinds.split()]
    check_gradients(*make_layer("fc", size, [{"parameter": WIDTH * size}] * len(inputs), bias=size), inputs)


@pytest.mark.parametrize("drop_rate", [0, 0.5])
def test_gradients_of_two_costs_add_up_in_the_layer_that_they_share(drop_rate):
    def config():
        x, y = data_layer("x", WIDTH), data_layer("y", SIZE)
        hidden = fc_layer(x, WIDTH, layer_attr=ExtraAttr(drop_rate=drop_rate))
        outputs(square_error_cost(fc_layer([hidden, hidden], SIZE), y), square_error_cost(hidden, x))

    message = parse_config(config).model_config
    rng = np.random.default_rng(4)
    net, table = make_network(message, rng)
    batch = {name: dense(rng.normal(size=(ROWS, width))) for name, width in (("x", WIDTH), ("y", SIZE))}
    check_cost_gradients(net, table, lambda: net.forward(batch, Stream(7)), rng, by_parameter=True)
    assert all(one.gradient.any() for one in table)

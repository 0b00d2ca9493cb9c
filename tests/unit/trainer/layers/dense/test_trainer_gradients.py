"""The gradient check is the specification of layers, activations and costs.

Each line of the table is a small network; in float64 every parameter's gradient along a random direction must agree
with central differences of the cost, which also checks what flows back through the layers in between.
"""

import numpy as np
from each import each
from layer_checks import check_cost_gradients

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.activations import ACTIVATIONS
from trainer.arrays.arguments import Argument, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.network.network import Network

ROWS, WIDTH, HIDDEN, CLASSES = 5, 4, 3, 3


def build(layers, outputs):
    """A ModelConfig from (name, type, size, inputs, extra fields); fc layers get weights and a bias."""
    config = ModelConfig(type="nn", output_layer_names=outputs)
    sizes = {}
    for name, kind, size, inputs, extra in layers:
        layer = config.layers.add(name=name, type=kind, size=size, **extra)
        sizes[name] = size
        for number, one in enumerate(inputs):
            link = layer.inputs.add(input_layer_name=one)
            if kind == "fc":
                link.input_parameter_name = f"_{name}.w{number}"
                config.parameters.add(name=f"_{name}.w{number}", size=sizes[one] * size, dims=[sizes[one], size])
        if kind == "fc":
            layer.bias_parameter_name = f"_{name}.wbias"
            config.parameters.add(name=f"_{name}.wbias", size=size, dims=[1, size])
    return config


def fc(name, size, *inputs, **extra):
    return (name, "fc", size, inputs, {"active_type": "", **extra})


def data(name, size):
    return (name, "data", size, (), {})


def cost(kind, *inputs, name="cost", **extra):
    return (name, kind, 1, inputs, extra)


def dense(rng, width=WIDTH):
    return Argument(value=rng.normal(size=(ROWS, width)))


def sparse(rng, with_values):
    ids = np.array([0, 2, 2, 1, 3, 3, 3, 0])  # repeated within a row; row 1 is empty
    values = rng.normal(size=len(ids)) if with_values else None
    return Argument(sparse=Sparse(WIDTH, np.array([0, 3, 3, 5, 7, 8]), ids, values))


def ids():
    return Argument(ids=np.array([0, 2, 1, 1, 0]))


SQUARE = cost("square_error", "out", "y")
ENTROPY = cost("multi-class-cross-entropy", "out", "label")
X, Y, LABEL = data("x", WIDTH), data("y", HIDDEN), data("label", CLASSES)
SOFTMAX = fc("out", CLASSES, "x", active_type="softmax")
ROW_ACTIVATIONS = sorted(ACTIVATIONS.keys() - {"sequence_softmax"})  # that one has a test of its own


CASES = {
    **{
        f"activation {kind or 'linear'}": [
            X,
            fc("hidden", 4, "x", active_type=kind),
            fc("out", HIDDEN, "hidden"),
            Y,
            SQUARE,
        ]
        for kind in ROW_ACTIVATIONS
    },
    "fc dense": [X, fc("out", HIDDEN, "x"), Y, SQUARE],
    "fc sparse 0/1": [data("sparse", WIDTH), fc("out", HIDDEN, "sparse"), Y, SQUARE],
    "fc sparse 0/1 to one column": [
        data("sparse", WIDTH),
        fc("out", 1, "sparse"),
        data("y1", 1),
        cost("square_error", "out", "y1"),
    ],
    "fc sparse with values": [data("sparse_values", WIDTH), fc("out", HIDDEN, "sparse_values"), Y, SQUARE],
    "fc of several inputs": [
        X,
        data("sparse", WIDTH),
        fc("hidden", 4, "x"),
        fc("out", HIDDEN, "x", "sparse", "hidden"),
        Y,
        SQUARE,
    ],
    "fc twice on one layer": [
        X,
        fc("hidden", 4, "x", active_type="tanh"),
        fc("out", HIDDEN, "hidden", "hidden"),
        Y,
        SQUARE,
    ],
    "cross entropy": [X, SOFTMAX, LABEL, ENTROPY],
    "cross entropy, weighted": [
        X,
        SOFTMAX,
        LABEL,
        data("weight", 1),
        cost("multi-class-cross-entropy", "out", "label", "weight"),
    ],
    "square error, weighted": [
        X,
        fc("out", HIDDEN, "x"),
        Y,
        data("weight", 1),
        cost("square_error", "out", "y", "weight"),
    ],
    "square error, sparse label": [
        X,
        fc("out", WIDTH, "x"),
        data("sparse_values", WIDTH),
        cost("square_error", "out", "sparse_values"),
    ],
}


def slots(rng):
    return {
        "x": dense(rng),
        "y": dense(rng, HIDDEN),
        "y1": dense(rng, 1),
        "weight": Argument(value=rng.random((ROWS, 1))),
        "label": ids(),
        "sparse": sparse(rng, False),
        "sparse_values": sparse(rng, True),
    }


def check(config, batch, rng, stream_state=None):
    table = ParameterTable(config.parameters, np.float64)
    table.values[:] = rng.random(table.values.size) + 0.1  # positive sums, so that log and sqrt are defined
    network = Network(config, table)

    def forward():
        network.forward(batch, None if stream_state is None else Stream(stream_state))

    check_cost_gradients(network, table, forward, rng, abs=1e-8)
    assert (table.gradients != 0).any()


def positive_where_needed(name, batch):
    if name in ("activation log", "activation sqrt", "activation reciprocal"):
        batch = {**batch, "x": Argument(value=np.abs(batch["x"].value) + 0.1)}
    return batch


@each("name", CASES)
def test_gradients_agree_with_finite_differences(name):
    rng = np.random.default_rng(len(name))
    config = build(CASES[name], [CASES[name][-1][0]])
    check(config, positive_where_needed(name, slots(rng)), rng)


def test_gradients_through_dropout_are_those_of_the_kept_elements():
    rng = np.random.default_rng(3)
    config = build(
        [X, fc("hidden", 4, "x", active_type="tanh", drop_rate=0.5), fc("out", HIDDEN, "hidden"), Y, SQUARE], ["cost"]
    )
    check(config, slots(rng), rng, stream_state=7)


def test_gradients_of_two_costs_add_up():
    rng = np.random.default_rng(4)
    second = cost("square_error", "hidden", "x", name="second")
    config = build(
        [X, fc("hidden", WIDTH, "x", active_type="tanh"), fc("out", HIDDEN, "hidden"), Y, SQUARE, second],
        ["cost", "second"],
    )
    check(config, slots(rng), rng)

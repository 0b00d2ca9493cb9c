"""Gradient checks of the layers that run over sequences and of their single steps.

In float64 every parameter's gradient along a random direction must agree with central differences of the cost. Each
network has an fc layer below what is checked, so that what flows back through it is checked too.
"""

from functools import partial

import numpy as np
from each import each
from layer_checks import check_cost_gradients, make_network

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument

WIDTH, SIZE = 3, 4
STARTS = {
    "several lengths": [0, 3, 3, 4, 9, 11, 11],
    "one sequence": [0, 5],
    "all of length 1": [0, 1, 2, 3],
    "all empty but one": [0, 0, 2, 2],
    "equal lengths": [0, 3, 6],
}


def add_parameter(config, name, size, *dims):
    config.parameters.add(name=name, size=size, dims=dims)
    return name


def fc(config, name, source, width, size, **extra):
    layer = config.layers.add(name=name, type="fc", size=size, **extra)
    weight = add_parameter(config, f"_{name}.w0", width * size, width, size)
    layer.inputs.add(input_layer_name=source, input_parameter_name=weight)
    layer.bias_parameter_name = add_parameter(config, f"_{name}.wbias", size, 1, size)
    return name


def layer(config, kind, sources, sizes, size=SIZE, bias=0, **extra):
    """Add the layer under test, called "tested"; sizes: those of its inputs' parameters, 0 for none."""
    added = config.layers.add(name="tested", type=kind, size=size, **extra)
    for number, (source, count) in enumerate(zip(sources, sizes, strict=True)):
        link = added.inputs.add(input_layer_name=source)
        if count:
            link.input_parameter_name = add_parameter(config, f"_tested.w{number}", count)
    if bias:
        added.bias_parameter_name = add_parameter(config, "_tested.wbias", bias)
    return added


def network(outputs=("cost",)):
    config = ModelConfig(type="nn", output_layer_names=outputs)
    config.layers.add(name="x", type="data", size=WIDTH)
    config.layers.add(name="y", type="data", size=SIZE)
    return config


def square_error(config, source, name="cost"):
    cost = config.layers.add(name=name, type="square_error", size=1)
    cost.inputs.add(input_layer_name=source)
    cost.inputs.add(input_layer_name="y")


def lstm(config, act="tanh", gate="sigmoid", state="tanh", **extra):
    fc(config, "projected", "x", WIDTH, 4 * SIZE)
    layer(
        config,
        "lstmemory",
        ["projected"],
        [4 * SIZE * SIZE],
        bias=7 * SIZE,
        active_type=act,
        active_gate_type=gate,
        active_state_type=state,
        **extra,
    )


def gru(config, act="tanh", gate="sigmoid", bias=3 * SIZE, **extra):
    fc(config, "projected", "x", WIDTH, 3 * SIZE)
    layer(
        config,
        "gated_recurrent",
        ["projected"],
        [3 * SIZE * SIZE],
        bias=bias,
        active_type=act,
        active_gate_type=gate,
        **extra,
    )


def recurrent(config, act="tanh", bias=SIZE, **extra):
    fc(config, "projected", "x", WIDTH, SIZE)
    layer(config, "recurrent", ["projected"], [SIZE * SIZE], bias=bias, active_type=act, **extra)


def lstm_step(config, bias=3 * SIZE):
    fc(config, "projected", "x", WIDTH, 4 * SIZE)
    fc(config, "before", "x", WIDTH, SIZE)
    layer(
        config,
        "lstm_step",
        ["projected", "before"],
        [0, 0],
        bias=bias,
        active_type="tanh",
        active_gate_type="sigmoid",
        active_state_type="tanh",
    )


def lstm_step_state(config):
    lstm_step(config)
    state = config.layers.add(name="state", type="get_output", size=SIZE)
    state.inputs.add(input_layer_name="tested", input_layer_argument="state")
    fc(config, "upon state", "state", SIZE, SIZE)
    config.layers[-1].inputs.add(input_layer_name="tested", input_parameter_name="_upon state.w0")


def gru_step(config, bias=3 * SIZE):
    fc(config, "projected", "x", WIDTH, 3 * SIZE)
    fc(config, "before", "x", WIDTH, SIZE)
    layer(
        config,
        "gru_step",
        ["projected", "before"],
        [3 * SIZE * SIZE, 0],
        bias=bias,
        active_type="tanh",
        active_gate_type="sigmoid",
    )


CASES = {
    "lstmemory": (lstm, {}),
    "lstmemory, reversed": (lstm, {"reversed": True}),
    "lstmemory, other activations": (lstm, {"act": "relu", "gate": "tanh", "state": "sigmoid"}),
    "lstmemory, linear": (lstm, {"act": "", "state": "linear"}),
    "lstmemory, rare activations": (lstm, {"act": "stanh", "state": "softsign"}),
    "lstmemory, bounded relu": (lstm, {"act": "brelu", "gate": "softsign", "state": "brelu"}),
    "grumemory": (gru, {}),
    "grumemory, reversed": (gru, {"reversed": True}),
    "grumemory, other activations": (gru, {"act": "sigmoid", "gate": "tanh"}),
    "grumemory without bias": (gru, {"bias": 0}),
    "recurrent": (recurrent, {}),
    "recurrent, reversed": (recurrent, {"reversed": True}),
    "recurrent, relu": (recurrent, {"act": "relu"}),
    "recurrent, softmax": (recurrent, {"act": "softmax"}),
    "recurrent without bias": (recurrent, {"bias": 0}),
    "lstm step": (lstm_step, {}),
    "lstm step without bias": (lstm_step, {"bias": 0}),
    "lstm step and its state": (lstm_step_state, {}),
    "gru step": (gru_step, {}),
    "gru step without bias": (gru_step, {"bias": 0}),
}


def check(config, batch, rng):
    net, table = make_network(config, rng, 0.5)
    check_cost_gradients(net, table, lambda: net.forward(batch), rng)
    for parameter in table:
        assert (parameter.gradient != 0).any(), parameter.name


@each("lengths", ["several lengths", "one sequence"])
@each("name", CASES)
def test_gradients_agree_with_finite_differences(name, lengths):
    rng = np.random.default_rng(len(name))
    config = network()
    add, extra = CASES[name]
    add(config, **extra)
    square_error(config, config.layers[-1].name)
    starts = np.array(STARTS[lengths])
    x = Argument(value=rng.normal(size=(starts[-1], WIDTH)), starts=starts)
    y = Argument(value=rng.normal(size=(starts[-1], SIZE)), starts=starts)
    check(config, {"x": x, "y": y}, rng)


@each("lengths", STARTS)
@each("kind", [lstm, gru, recurrent])
@each("is_reversed", [False, True])
def test_input_gradients_agree_with_finite_differences(kind, is_reversed, lengths):
    """By batches of every shape, one after the other with the same network, whose work arrays then change size."""
    rng = np.random.default_rng(5)
    config = network(outputs=["tested"])
    kind(config, reversed=is_reversed)
    net, table = make_network(config, rng, 0.5)
    for starts in (STARTS[lengths], [0, 2, 3], STARTS[lengths]):
        value = rng.normal(size=(starts[-1], WIDTH))
        batch = {"x": Argument(value=value, starts=np.array(starts)), "y": Argument(value=value)}
        check_cost_gradients(net, table, partial(net.forward, batch), rng)

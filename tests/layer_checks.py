"""Layers and networks for tests: built from a few fields, run, and checked against finite differences in float64."""

import numpy as np
import pytest

from proto.ModelConfig_pb2 import ModelConfig
from trainer.arguments import Argument
from trainer.layers import find_layer
from trainer.parameters import ParameterTable

STEP = 1e-6


def make_layer(kind, size, inputs, bias=0, dtype=np.float64, **fields):
    """A layer and its parameter table, filled at random.

    inputs: for each input its fields, such as {"parameter": 12} for one with a parameter of 12 values.
    """
    config = ModelConfig(type="nn")
    layer = config.layers.add(name="tested", type=kind, size=size, **fields)
    for number, given in enumerate(inputs):
        others = {name: value for name, value in given.items() if name != "parameter"}
        link = layer.inputs.add(input_layer_name=f"input{number}", **others)
        if given.get("parameter"):
            link.input_parameter_name = f"w{number}"
            config.parameters.add(name=f"w{number}", size=given["parameter"])
    if bias:
        layer.bias_parameter_name = "bias"
        config.parameters.add(name="bias", size=bias)
    table = ParameterTable(config.parameters, dtype)
    table.values[:] = np.random.default_rng(11).normal(size=table.values.size)
    return find_layer(layer)(layer, table), table


def run(layer, *inputs):
    return layer.forward(inputs)


def dense(rows, starts=None, sub_starts=None):
    return Argument(
        value=np.array(rows),
        starts=None if starts is None else np.array(starts),
        sub_starts=None if sub_starts is None else np.array(sub_starts),
    )


def ids(numbers, starts=None):
    return Argument(ids=np.array(numbers), starts=None if starts is None else np.array(starts))


def check_gradients(layer, table, inputs, varied=None):
    """Compare all gradients with central differences of sum(c * y), for random c and along random directions.

    varied: the positions of the inputs that take a gradient; by default the dense ones.
    """
    rng = np.random.default_rng(7)
    inputs = list(inputs)
    if varied is None:
        varied = [number for number, one in enumerate(inputs) if one.value is not None]
    layer.is_training = True
    c = rng.normal(size=layer.forward(inputs).value.shape)

    def moved(target, direction):
        def cost(step):
            parameters, arguments = table.values.copy(), list(inputs)
            if isinstance(target, int):
                arguments[target] = inputs[target].with_value(inputs[target].value + step * direction)
            else:
                target.value[:] += step * direction
            result = float((layer.forward(arguments).value * c).sum())
            table.values[:] = parameters
            return result

        return (cost(STEP) - cost(-STEP)) / (2 * STEP)

    directions = {number: rng.normal(size=inputs[number].value.shape) for number in varied}
    numeric = {number: moved(number, direction) for number, direction in directions.items()}
    parameter_directions = [(one, rng.normal(size=one.size)) for one in table]
    parameter_numeric = [moved(one, direction) for one, direction in parameter_directions]

    table.clear_gradients()
    layer.forward(inputs)
    flowing = layer.backward(c.copy(), [number in varied for number in range(len(inputs))])
    assert len(flowing) == len(inputs)
    for number in varied:
        assert flowing[number].shape == inputs[number].value.shape
        got = float((flowing[number] * directions[number]).sum())
        assert got == pytest.approx(numeric[number], rel=5e-6, abs=1e-7), f"input {number}"
    for (one, direction), expected in zip(parameter_directions, parameter_numeric, strict=True):
        assert float(one.gradient @ direction) == pytest.approx(expected, rel=5e-6, abs=1e-7), one.name


def check_cost_gradients(network, table, forward, rng, rel=2e-6, abs=1e-7):
    """Compare the gradient of a network's cost with a central difference along a random direction.

    The table's values are where; `forward` runs the network, always on the same batch and the same draws.
    """

    def cost_at(values):
        table.values[:] = values
        forward()
        return network.cost()

    start, direction = table.values.copy(), rng.normal(size=table.values.size)
    numeric = (cost_at(start + STEP * direction) - cost_at(start - STEP * direction)) / (2 * STEP)
    cost_at(start)
    table.clear_gradients()
    network.backward()
    assert float(table.gradients @ direction) == pytest.approx(numeric, rel=rel, abs=abs)

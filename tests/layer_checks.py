"""Layers and networks for tests: built from a few fields, run, and checked against finite differences in float64."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument, PickedGradient
from trainer.arrays.parameters import ParameterTable
from trainer.layers import find_layer
from trainer.network.check_grads import CheckedVariable, check_grads

STEP = 1e-6


def make_layer(kind, size, inputs, bias=0, dtype=np.float64, **fields):
    """A layer and its parameter table, filled at random.

    inputs: the fields of each input; {"parameter": 12} is an input with a parameter of 12 values, for example.
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


def compare(cost, variables, rng, rel, abs):
    """Compare the gradients of some variables with central differences of the cost along random directions."""
    for one in check_grads(cost, variables, lambda gradient: rng.normal(size=gradient.shape), lambda _slope: STEP):
        assert one.analytic_delta / STEP == pytest.approx(one.true_delta / STEP, rel=rel, abs=abs), one.name


def check_gradients(layer, table, inputs, varied=None, rel=5e-6, abs=1e-7):
    """Check all gradients of a layer by the cost sum(c * y), with random c.

    varied: the positions of the inputs that get a gradient; by default these are the dense inputs.
    """
    rng = np.random.default_rng(7)
    inputs = list(inputs)
    if varied is None:
        varied = [number for number, one in enumerate(inputs) if one.value is not None]
    for number in varied:
        inputs[number] = inputs[number].with_value(inputs[number].value.copy())
    layer.is_training = True
    c = rng.normal(size=layer.forward(inputs).value.shape)
    table.clear_gradients()
    layer.forward(inputs)
    flowing = layer.backward(c.copy(), [number in varied for number in range(len(inputs))])
    flowing = [one.to_dense() if isinstance(one, PickedGradient) else one for one in flowing]
    assert len(flowing) == len(inputs)
    variables = []
    for number in varied:
        assert flowing[number].shape == inputs[number].value.shape
        variables.append(CheckedVariable(f"input {number}", inputs[number].value, flowing[number].copy()))
    variables += [CheckedVariable(one.name, one.value, one.gradient) for one in table]
    compare(lambda: float((layer.forward(inputs).value * c).sum()), variables, rng, rel, abs)


def check_cost_gradients(network, table, forward, rng, rel=2e-6, abs=1e-7, by_parameter=False):
    """Check the gradient of a network's cost, for all parameters at once or one by one.

    The gradient is computed at the values of the table. `forward` runs the network, each time on the same batch and
    with the same random numbers.
    """

    def cost():
        forward()
        return network.cost()

    cost()
    table.clear_gradients()
    network.backward()
    variables = [CheckedVariable("the parameters", table.values, table.gradients)]
    if by_parameter:
        variables = [CheckedVariable(one.name, one.value, one.gradient) for one in table]
    compare(cost, variables, rng, rel, abs)

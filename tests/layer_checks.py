"""Layers and networks for tests: built from a few fields, run, and checked against finite differences in float64."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument, PickedGradient
from trainer.arrays.parameters import ParameterTable
from trainer.config.v1.layer_types import LAYER_TYPES
from trainer.layers import LAYERS, find_layer
from trainer.network.batch_work import estimate
from trainer.network.check_grads import CheckedVariable, check_grads
from trainer.network.data_parallel import cut_batch
from trainer.network.network import Network

STEP = 1e-6


def make_layer(kind, size, inputs, bias=0, dtype=np.float64, **fields):
    """A layer and its parameter table, filled at random.

    inputs: the fields of each input; {"parameter": 12} is an input with a parameter of 12 values, for example, which is
    static with {"static": True}.
    """
    config = ModelConfig(type="nn")
    layer = config.layers.add(name="tested", type=kind, size=size, **fields)
    for number, given in enumerate(inputs):
        others = {name: value for name, value in given.items() if name not in ("parameter", "static")}
        link = layer.inputs.add(input_layer_name=f"input{number}", **others)
        if given.get("parameter"):
            link.input_parameter_name = f"w{number}"
            config.parameters.add(name=f"w{number}", size=given["parameter"], is_static=given.get("static", False))
    if bias:
        layer.bias_parameter_name = "bias"
        config.parameters.add(name="bias", size=bias)
    table = ParameterTable(config.parameters, dtype)
    table.values[:] = np.random.default_rng(11).normal(size=table.values.size)
    return find_layer(layer)(layer, table), table


def make_network(config, rng=1, scale=1.0, dtype=np.float64):
    """The network of a config and its parameter table, filled at random; rng: a generator or its seed."""
    table = ParameterTable(config.parameters, dtype)
    table.values[:] = np.random.default_rng(rng).normal(size=table.values.size) * scale
    return Network(config, table), table


def run(layer, *inputs):
    return layer.forward(inputs)


def types_of(*modules):
    """The layer types whose classes are in these modules."""
    return {kind for kind, layer in LAYERS.items() if layer.__module__ in {one.__name__ for one in modules}}


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
    check_independence(layer, inputs)
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


def differs_in_halves(layer, inputs):
    """Whether the halves of a batch give other results or input gradients than the whole batch, beyond rounding.

    Rounding differs, because the order in which BLAS adds depends on the number of rows.
    """
    whole = layer.forward(inputs)
    whole = Argument(*[None if one is None else one.copy() for one in (whole.value, whole.ids)], None, whole.starts)
    flows = layer.takes_gradient and whole.value is not None
    c = whole.with_value(np.random.default_rng(9).normal(size=whole.value.shape)) if flows else whole
    gradients = _go_back(layer, inputs, c) if flows else []
    middle = inputs[0].sequences // 2
    for first, stop in ((0, middle), (middle, inputs[0].sequences)):
        part = [one.cut(first, stop) for one in inputs]
        pairs = [(layer.forward(part), whole.cut(first, stop))]
        if pairs[0][0].rows != pairs[0][1].rows:
            return True
        if flows:
            whole_gradients = [one.cut(first, stop) for one in gradients]
            pairs += zip(_go_back(layer, part, c.cut(first, stop)), whole_gradients, strict=True)
        for one, other in pairs:
            for a, b in ((one.value, other.value), (one.ids, other.ids), (one.starts, other.starts)):
                if a is not None and not np.allclose(a, b, rtol=1e-9, atol=1e-11):
                    return True
    return False


def _go_back(layer, inputs, c):
    """The gradients of the dense inputs, as arguments with the sequences of the inputs."""
    flowing = layer.backward(c.value.copy(), [one.value is not None for one in inputs])
    flowing = [one.to_dense() if isinstance(one, PickedGradient) else one for one in flowing]
    pairs = zip(inputs, flowing, strict=True)
    return [one.with_value(dx.copy()) for one, dx in pairs if isinstance(dx, np.ndarray)]


def check_independence(layer, inputs):
    """Check that a layer computes each sample on its own, if its record does not say `is_coupled`.

    Batches whose samples are not the same parts of each input and of the result are not looked at.
    """
    record, samples = LAYER_TYPES.get(layer.config.type), {one.sequences for one in inputs}
    if record is None or record.is_coupled or len(samples) != 1 or samples < {0, 1}:
        return
    if layer.forward(inputs).sequences in samples:
        assert not differs_in_halves(layer, inputs), f"the record of type {record.type} needs is_coupled=True"


def check_parts(network, table):
    """Check that the parts of the network's last batch give the cost and the gradients of the whole batch.

    Not looked at are networks with a coupled layer, batches whose samples are not the same parts of each slot, and
    states that go on from batch to batch.
    """
    names = [one.name for one in network.config.layers if one.type == "data" and one.name in network.outputs]
    batch = {name: network.outputs[name] for name in names}
    is_even = len({one.sequences for one in batch.values()}) == 1
    if estimate(network.config) is None or not is_even or network.states.carried() is not None:
        return
    found = []
    for count in (1, 2):
        table.clear_gradients()
        cost = 0.0
        for part in filter(None, cut_batch(batch, count)):
            network.forward(part, is_training=True)
            cost += network.cost()
            network.backward()
        found.append((cost, table.gradients.copy()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-9)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-9, atol=1e-11)


def check_cost_gradients(network, table, forward, rng, rel=2e-6, abs=1e-7, by_parameter=False):
    """Check the gradient of a network's cost, for all parameters at once or one by one.

    The gradient is computed at the values of the table. `forward` runs the network, each time on the same batch and
    with the same random numbers.
    """

    def cost():
        forward()
        return network.cost()

    cost()
    check_parts(network, table)
    cost()
    table.clear_gradients()
    network.backward()
    variables = [CheckedVariable("the parameters", table.values, table.gradients)]
    if by_parameter:
        variables = [CheckedVariable(one.name, one.value, one.gradient) for one in table]
    compare(cost, variables, rng, rel, abs)

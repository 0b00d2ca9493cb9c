"""Numbers that are not finite are found, and the layer that they come from is named."""

import numpy as np
import pytest
from each import each

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument, Sparse, is_finite
from trainer.arrays.parameters import ParameterTable
from trainer.network import nan_checks
from trainer.network.network import Network


def regression():
    config = ModelConfig(type="nn", output_layer_names=["cost"], input_layer_names=["x", "y"])
    config.layers.add(name="x", type="data", size=2)
    config.layers.add(name="y", type="data", size=1)
    for name, source in (("hidden", "x"), ("out", "hidden")):
        layer = config.layers.add(name=name, type="fc", size=1, bias_parameter_name=f"{name}.b")
        layer.inputs.add(input_layer_name=source, input_parameter_name=f"{name}.w")
        size = 2 if source == "x" else 1
        config.parameters.add(name=f"{name}.w", size=size, dims=[size, 1])
        config.parameters.add(name=f"{name}.b", size=1, dims=[1, 1])
    cost = config.layers.add(name="cost", type="square_error", size=1)
    cost.inputs.add(input_layer_name="out")
    cost.inputs.add(input_layer_name="y")
    return config


def run(x, change):
    config = regression()
    table = ParameterTable(config.parameters)
    network = Network(config, table)
    table.values[:] = 1
    for name, value in change.items():
        table[name].value[:] = value
    with np.errstate(all="ignore"):
        network.forward(
            {"x": Argument(value=np.array(x, np.float32)), "y": Argument(value=np.zeros((1, 1), np.float32))}
        )
    return network


def test_the_first_layer_with_such_a_number_is_named_with_its_inputs():
    assert nan_checks.describe_source(run([[-3, 2]], {"out.w": np.nan})) == (
        "the first such output is that of layer out (fc), with input hidden in [0, 0], "
        "parameter out.w without finite numbers, parameter out.b in [1, 1]"
    )
    assert nan_checks.describe_source(run([[np.inf, 2]], {})) == ("the first such output is that of layer x (data)")
    assert (
        "layer cost (square_error), with input out in [2e+30, 2e+30], input y in [0, 0]"
        in nan_checks.describe_source(run([[1e30, 1e30]], {}))
    )


def test_finite_outputs_say_so():
    said = "the output of every layer is finite, but the sum of the costs is not"
    assert nan_checks.describe_source(run([[1, 2]], {})) == said


def test_a_parameters_layers_are_described():
    assert nan_checks.describe_users(run([[-3, 2]], {}), "hidden.b") == "layer hidden (fc) with input x in [-3, 2]"


def table_of(*sizes):
    config = ModelConfig(type="nn")
    for number, size in enumerate(sizes):
        config.parameters.add(name=f"p{number}", size=size, dims=[1, size])
    return ParameterTable(config.parameters)


def find(table, batches):
    check = nan_checks.GradientCheck(table)
    return [name for name in (check.find() for _ in range(batches)) if name]


@each("bad", [np.nan, np.inf, -np.inf])
@each(("parameter", "position"), [("p0", 0), ("p0", 199_999), ("p1", 4), ("p2", 70_000)])
def test_a_bad_gradient_is_found_in_turns(bad, parameter, position):
    table = table_of(200_000, 5, 80_000)
    table.gradients.fill(1)
    rounds = nan_checks.CHECK_PERIOD * -(-280_005 // nan_checks.WINDOW)
    assert find(table, rounds) == []
    table[parameter].gradient[position] = bad
    assert set(find(table, rounds)) == {parameter}


def test_small_parameters_are_looked_at_every_time():
    table = table_of(200_000, 5)
    table.gradients[-1] = np.nan
    assert find(table, nan_checks.CHECK_PERIOD * 3) == ["p1"] * 3


def test_large_finite_numbers_are_finite():
    assert is_finite(np.full(3, 1e30, np.float32))
    assert not is_finite(np.array([1, np.nan], np.float32))
    table = table_of(3, 2)
    assert nan_checks.find_bad_value(table) == ""
    table["p1"].value[1] = np.inf
    assert nan_checks.find_bad_value(table) == "p1"


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (Argument(value=np.array([[1, -2], [np.nan, np.inf]], np.float32)), "in [-2, 1] and 2 not finite"),
        (Argument(value=np.zeros((0, 3), np.float32)), "empty"),
        (Argument(ids=np.array([4, 2])), "has ids in [2, 4]"),
        (Argument(ids=np.array([], np.int32)), "has no ids"),
        (Argument(sparse=Sparse(9, np.array([0, 2, 3]), np.array([1, 2, 3]))), "has sparse rows of up to 2 ones"),
        (
            Argument(sparse=Sparse(9, np.array([0, 2]), np.array([1, 2]), np.array([0.5, 7], np.float32))),
            "in [0.5, 7]",
        ),
    ],
)
def test_ranges_are_spelt(argument, text):
    assert nan_checks.describe_range(argument) == text

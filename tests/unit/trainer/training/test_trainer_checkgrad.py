"""The checkgrad job's comparison: on networks whose gradients are right, wrong and zero, and its log lines."""

import numpy as np
import pytest

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.layers.dense.fc import FullyConnectedLayer
from trainer.network.check_grads import Comparison
from trainer.network.network import Network
from trainer.training.checkgrad import check_parameters, draw_direction, make_line


def regression(dtype, drop_rate=0.0):
    """x (4) -> fc (3, tanh) -> fc (2) against y, and a parameter that nothing reads."""
    config = ModelConfig(type="nn", output_layer_names=["cost"])
    config.layers.add(name="x", type="data", size=4)
    config.layers.add(name="y", type="data", size=2)
    for name, before, size, active in (("hidden", "x", 3, "tanh"), ("out", "hidden", 2, "")):
        layer = config.layers.add(name=name, type="fc", size=size, active_type=active, drop_rate=drop_rate)
        layer.inputs.add(input_layer_name=before, input_parameter_name=f"{name}.w")
        config.parameters.add(name=f"{name}.w", size={"hidden": 12, "out": 6}[name])
        drop_rate = 0.0
    config.parameters.add(name="still", size=5, is_static=True)
    config.parameters.add(name="unused", size=2)
    cost = config.layers.add(name="cost", type="square_error", size=1)
    for name in ("out", "y"):
        cost.inputs.add(input_layer_name=name)
    table = ParameterTable(config.parameters, dtype)
    rng = np.random.default_rng(2)
    table.values[:] = rng.normal(size=table.values.size)
    batch = {"x": Argument(value=rng.normal(size=(6, 4)).astype(dtype)), "y": Argument(value=np.ones((6, 2), dtype))}
    return Network(config, table), table, batch


@pytest.mark.parametrize("drop_rate", [0.0, 0.5])
def test_right_gradients_agree_and_values_stay(drop_rate):
    network, table, batch = regression(np.float64, drop_rate)
    before = table.values.copy()
    found = list(check_parameters(network, table, batch, 1e-5, Stream(1)))
    assert [one.name for one in found] == ["hidden.w", "out.w", "unused"]
    assert all(abs(one.difference) < 1e-6 for one in found)
    np.testing.assert_array_equal(table.values, before)
    cost = network.cost()
    for one in found[:2]:  # the step is such that the cost changes by a hundred-thousandth
        assert one.analytic_delta == pytest.approx(1e-5 * cost, rel=1e-6)
        assert one.true_delta == pytest.approx(1e-5 * cost, rel=1e-4)


def test_float32_agrees_with_a_larger_step():
    network, table, batch = regression(np.float32)
    found = list(check_parameters(network, table, batch, 1e-2, Stream(1)))
    assert all(abs(one.difference) < 0.01 for one in found)


def test_a_parameter_that_nothing_reads_moves_by_the_step_itself():
    network, table, batch = regression(np.float64)
    *_, unused = check_parameters(network, table, batch, 1e-5, Stream(1))
    assert (unused.step, unused.true_delta, unused.analytic_delta, unused.difference) == (1e-5, 0, 0, 0)


def test_a_wrong_gradient_is_marked(monkeypatch):
    right = FullyConnectedLayer.backward

    def backward(self, gradient, wanted):
        return right(self, gradient * 1.05 if self.name == "hidden" else gradient, wanted)

    monkeypatch.setattr(FullyConnectedLayer, "backward", backward)
    network, table, batch = regression(np.float64)
    hidden, out, _ = check_parameters(network, table, batch, 1e-5, Stream(1))
    assert hidden.difference == pytest.approx(1 / 1.05 - 1, rel=0.1) and make_line(hidden, " ").endswith(" ***")
    assert abs(out.difference) < 1e-6 and not make_line(out, " ").endswith("***")


def test_the_direction_is_the_gradient_and_half_as_much_noise():
    gradient = np.array([3.0, 0.0, -4.0])
    direction = draw_direction(gradient, Stream(5))
    assert np.linalg.norm(direction - gradient) == pytest.approx(2.5)
    assert (draw_direction(gradient, Stream(6)) != direction).all()
    noise = draw_direction(np.zeros(1000), Stream(5))
    assert -1 < noise.min() < -0.9 and 0.9 < noise.max() < 1


def test_the_line_is_the_legacys():
    one = Comparison("___fc_layer_0__.w0", 0.000123456, (2.5, 2.25), 0.125)
    assert make_line(one, " ") == (
        "___fc_layer_0__.w0  step=0.000123456    cost1=2.5       cost2=2.25      true_delta=0.125          "
        "analytic_delta=0.125          diff=0"
    )
    assert make_line(Comparison("w", 1e-5, (1.0, 0.0), 0.495), ".") == (
        "w...................step=1e-05..........cost1=1.........cost2=0.........true_delta=0.5............"
        "analytic_delta=0.495..........diff=0.010101 ***"
    )


def test_a_difference_that_is_no_number_is_marked():
    assert make_line(Comparison("w", 1.0, (float("nan"), 1.0), 1.0), " ").endswith("diff=nan ***")

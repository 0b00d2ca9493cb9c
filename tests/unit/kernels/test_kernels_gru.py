"""All steps of a GRU: the compiled loop against numpy."""

import numpy as np
import pytest

import kernels
from kernels import recurrent as hot
from proto.ModelConfig_pb2 import LayerConfig
from proto.ParameterConfig_pb2 import ParameterConfig
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.layers.recurrent.gru import GruLayer

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")


def make_layer(size, gate, candidate, has_bias):
    config = LayerConfig(name="gru", type="gated_recurrent", size=size, active_type=candidate, active_gate_type=gate)
    config.inputs.add(input_layer_name="x", input_parameter_name="w")
    sizes = {"w": 3 * size * size, **({"b": 3 * size} if has_bias else {})}
    if has_bias:
        config.bias_parameter_name = "b"
    table = ParameterTable([ParameterConfig(name=name, size=count) for name, count in sizes.items()])
    table.values[:] = np.random.default_rng(size).normal(scale=0.4, size=table.values.size)
    return GruLayer(config, table), table


@pytest.mark.parametrize("size", [3, 16, 36, 68])
@pytest.mark.parametrize("lengths", [[], [0], [1], [2, 5, 0, 3, 5, 1, 4, 2, 2]])
@pytest.mark.parametrize(("gate", "candidate", "has_bias"), [("sigmoid", "tanh", True), ("relu", "", False)])
def test_a_run_of_a_gru_is_its_steps_in_numpy(size, lengths, gate, candidate, has_bias, monkeypatch):
    rng = np.random.default_rng(1)
    starts = np.cumsum([0, *lengths])
    x = rng.normal(size=(starts[-1], 3 * size)).astype(np.float32)
    gradient = rng.normal(size=(starts[-1], size)).astype(np.float32)
    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(hot, "compiled", compiled)
        layer, table = make_layer(size, gate, candidate, has_bias)
        h = layer.forward([Argument(value=x, starts=starts)]).value.copy()
        (d_x,) = layer.backward(gradient.copy(), [True])
        results.append([h, d_x, table.gradients])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4 * max(1, np.abs(other).max(initial=0)))


def test_a_run_whose_steps_grow_or_whose_rows_are_missing_is_refused():
    size, n = 4, 3
    square, wide = np.zeros((n, size), np.float32), np.zeros((n, 3 * size), np.float32)
    w = np.zeros(3 * size * size, np.float32)
    run = hot.GruRun(wide, square, square.copy(), np.array([0, 1, 3]), "sigmoid", "tanh")
    with pytest.raises(ValueError, match="steps"):
        run.forward(wide.copy(), np.arange(n), w, None)
    run = hot.GruRun(wide, square, square.copy(), np.array([0, 2, 3]), "sigmoid", "tanh")
    with pytest.raises(ValueError, match="steps"):
        run.forward(wide.copy(), np.array([0, 1, 3]), w, None)
    with pytest.raises(ValueError, match="bias"):
        run.forward(wide.copy(), np.arange(n), w, np.zeros(size, np.float32))
    run.forward(wide.copy(), np.arange(n), w, None)
    with pytest.raises(ValueError, match="steps"):
        run.backward(square.copy(), np.arange(n), w[1:])

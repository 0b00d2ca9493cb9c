"""All steps of a GRU, and a conditional random field: the compiled loops against numpy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import chain as chains
from paddle_base.kernels import recurrent
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.layers.cost.crf import CrfLayer
from trainer.layers.recurrent.gru import GruLayer, GruStepLayer

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")


def make_layer(size, gate, candidate, has_bias, kind=GruLayer):
    config = LayerConfig(name="gru", type="gated_recurrent", size=size, active_type=candidate, active_gate_type=gate)
    config.inputs.add(input_layer_name="x", input_parameter_name="w")
    sizes = {"w": 3 * size * size, **({"b": 3 * size} if has_bias else {})}
    if has_bias:
        config.bias_parameter_name = "b"
    table = ParameterTable([ParameterConfig(name=name, size=count) for name, count in sizes.items()])
    table.values[:] = np.random.default_rng(size).normal(scale=0.4, size=table.values.size)
    if kind is GruStepLayer:
        config.inputs.add(input_layer_name="before")
    return kind(config, table), table


@each("size", [3, 16, 36, 68])
@each("lengths", [[], [0], [1], [2, 5, 0, 3, 5, 1, 4, 2, 2]])
@each(("gate", "candidate", "has_bias"), [("sigmoid", "tanh", True), ("relu", "", False)])
def test_a_run_of_a_gru_is_its_steps_in_numpy(size, lengths, gate, candidate, has_bias, monkeypatch):
    rng = np.random.default_rng(1)
    starts = np.cumsum([0, *lengths])
    x = rng.normal(size=(starts[-1], 3 * size)).astype(np.float32)
    gradient = rng.normal(size=(starts[-1], size)).astype(np.float32)
    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(recurrent, "compiled", compiled)
        layer, table = make_layer(size, gate, candidate, has_bias)
        h = layer.forward([Argument(value=x, starts=starts)]).value.copy()
        (d_x,) = layer.backward(gradient.copy(), [True])
        results.append([h, d_x, table.gradients])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4 * max(1, np.abs(other).max(initial=0)))


@each("size", [1, 16, 37])
@each("rows", [0, 1, 5])
@each(("gate", "candidate"), [("sigmoid", "tanh"), ("relu", "")])
def test_a_single_step_of_a_gru_is_that_of_numpy(size, rows, gate, candidate, monkeypatch):
    rng = np.random.default_rng(size)
    x, before, gradient = (rng.normal(size=(rows, width)).astype(np.float32) for width in (3 * size, size, size))
    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(recurrent, "compiled", compiled)
        layer, table = make_layer(size, gate, candidate, has_bias=True, kind=GruStepLayer)
        h = layer.forward([Argument(value=x), Argument(value=before)]).value
        results.append([h, *layer.backward(gradient, [True, True]), table.gradients])
    for one, other in zip(*results, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_rows_of_a_single_step_that_do_not_fit_are_refused():
    sums, u_r, one = (np.zeros((2, width), np.float32) for width in (9, 6, 3))
    step = recurrent.GruStep(u_r, one, one.copy(), "sigmoid", "tanh")
    for call in (
        lambda: step.compute_gates(sums[:1]),
        lambda: step.compute_output(sums, one.copy(), u_r),
        lambda: step.descend_output(one[:1], one.copy(), sums),
        lambda: step.descend_gates(u_r, one.copy(), sums),
        lambda: kernels.compiled.gru_step_gates(0, 0, u_r, one.copy(), sums, one),
    ):
        with pytest.raises(ValueError, match=r"the step do(es)? not fit"):
            call()
    with pytest.raises(TypeError, match="6 arguments are wanted"):
        kernels.compiled.gru_step_gates(0, 3, u_r)


def test_a_run_whose_steps_grow_or_whose_rows_are_missing_is_refused():
    size, n = 4, 3
    square, wide = np.zeros((n, size), np.float32), np.zeros((n, 3 * size), np.float32)
    w = np.zeros(3 * size * size, np.float32)
    run = recurrent.GruRun(wide, square, square.copy(), np.array([0, 1, 3]), "sigmoid", "tanh")
    with pytest.raises(ValueError, match="steps"):
        run.forward(wide.copy(), np.arange(n), w, None)
    run = recurrent.GruRun(wide, square, square.copy(), np.array([0, 2, 3]), "sigmoid", "tanh")
    with pytest.raises(ValueError, match="steps"):
        run.forward(wide.copy(), np.array([0, 1, 3]), w, None)
    with pytest.raises(ValueError, match="bias"):
        run.forward(wide.copy(), np.arange(n), w, np.zeros(size, np.float32))
    run.forward(wide.copy(), np.arange(n), w, None)
    with pytest.raises(ValueError, match="steps"):
        run.backward(square.copy(), np.arange(n), w[1:])


# ----- A conditional random field -----


def make_chain(classes, starts, seed=1):
    draw = np.random.default_rng(seed)
    x = draw.normal(scale=3, size=(starts[-1], classes)).astype(np.float32)
    labels = draw.integers(0, classes, starts[-1])
    scores = draw.normal(size=(classes + 2, classes)).astype(np.float32).astype(np.float64)
    return chains.LabelChain(x, labels, np.array(starts), scores, np.empty((2, *x.shape)))


@each("classes", [1, 2, 9])
@each("starts", [[0], [0, 0], [0, 1], [0, 4, 4, 5, 12, 12]])
def test_a_chain_is_that_of_numpy(classes, starts, monkeypatch):
    chain = make_chain(classes, starts)
    config = LayerConfig(name="crf", type="crf", size=classes)
    config.inputs.add(input_layer_name="x", input_parameter_name="w")
    config.inputs.add(input_layer_name="label")
    gradient = np.random.default_rng(2).normal(size=(len(starts) - 1, 1)).astype(np.float32)
    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(chains, "compiled", compiled)
        table = ParameterTable([ParameterConfig(name="w", size=chain.scores.size)])
        table.values[:] = chain.scores.reshape(-1)
        layer = CrfLayer(config, table)
        costs = layer.forward([Argument(chain.x, starts=chain.starts), Argument(ids=chain.labels, starts=chain.starts)])
        d_x, _ = layer.backward(gradient, [True, False])
        results.append([costs.value, d_x, table.gradients])
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_the_costs_of_a_chain_are_those_of_all_paths():
    chain = make_chain(3, [0, 4])
    start, end, move = chain.scores[0], chain.scores[1], chain.scores[2:]

    def score(labels):
        moves = sum(move[one, other] for one, other in itertools.pairwise(labels))
        return start[labels[0]] + end[labels[-1]] + moves + sum(chain.x[t, label] for t, label in enumerate(labels))

    total = sum(np.exp(score(labels)) for labels in itertools.product(range(3), repeat=4))
    np.testing.assert_allclose(chain.costs(), [np.log(total) - score(chain.labels)], rtol=1e-6)


def test_labels_and_sequences_that_do_not_fit_are_refused():
    chain = make_chain(3, [0, 2, 4])
    chain.costs()
    for wrong in (
        {"labels": np.array([0, 1, 2, 3])},
        {"labels": np.array([0, -1, 2, 1])},
        {"labels": np.array([0, 1, 2])},
        {"starts": np.array([0, 2, 5])},
        {"starts": np.array([0, 5, 4])},
        {"scores": np.zeros((4, 3))},
        {"sums": np.empty((2, 3, 3))},
    ):
        with pytest.raises(ValueError, match="sequences"):
            replace(chain, **wrong).costs()
        with pytest.raises(ValueError, match="sequences"):
            replace(chain, **wrong).gradients(np.ones(2))
    with pytest.raises(ValueError, match="gradients"):
        chain.gradients(np.ones(3))

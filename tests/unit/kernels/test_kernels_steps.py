"""Activations, steps of an LSTM and stretches of rows: the compiled loops against numpy."""

import numpy as np
import pytest

import kernels
from kernels import plain, rows, steps
from trainer.activations import ACTIVATIONS
from trainer.layers import lstm
from trainer.layers.step_activations import STEP_ACTIVATIONS

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")


@pytest.mark.parametrize("kind", ["sigmoid", "tanh", "relu"])
def test_activations_are_those_of_numpy(kind):
    z = np.concatenate([np.linspace(-20, 20, 999), [-1e4, 1e4, 0, 1e-30]]).astype(np.float32).reshape(17, 59)
    g = np.cos(z)
    exact = ACTIVATIONS[kind].forward(z.astype(np.float64))
    y = ACTIVATIONS[kind].forward(z)
    np.testing.assert_allclose(y, exact, atol=2e-7, rtol=1e-6)
    slope = ACTIVATIONS[kind].backward(g.astype(np.float64), exact, z.astype(np.float64))
    np.testing.assert_allclose(ACTIVATIONS[kind].backward(g, y, z), slope, atol=1e-6)


@pytest.mark.parametrize(
    "kinds", [("tanh", "sigmoid", "tanh"), ("relu", "sigmoid", "sigmoid"), ("", "sigmoid", "relu")]
)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_step_of_an_lstm_is_that_of_numpy(kinds, count, monkeypatch):
    size, rng = 7, np.random.default_rng(count)
    names = dict(zip(("candidate", "gate", "state"), kinds, strict=True))
    acts = lstm.LstmActivations(**{key: STEP_ACTIVATIONS[kind] for key, kind in names.items()}, names=names)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    gates, peepholes, before = draw(count, 4 * size), draw(3, size), draw(count, size)
    d_h, d_c = draw(count, size), draw(count, size)
    results = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(steps, "compiled", compiled)
        mine = gates.copy()
        c, h = np.empty_like(before), np.empty_like(before)
        lstm.step_forward(mine, peepholes, before, c, h, acts)
        forward = [mine.copy(), c.copy(), h.copy()]
        down, d_peepholes = d_c.copy(), np.ones((3, size), np.float32)
        lstm.step_backward(mine, peepholes, before, c, d_h.copy(), down, d_peepholes, acts)
        results.append([*forward, mine, down, d_peepholes])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-6)


def test_stretches_are_summed_and_their_maxima_found():
    starts = np.array([0, 3, 3, 4, 9])
    x = np.random.default_rng(2).integers(0, 4, (9, 5)).astype(np.float32)  # with several equal maxima
    assert rows.sum_stretches(x, starts).tolist() == plain.sum_stretches(x, starts).tolist()
    largest, places = rows.max_stretches(x, starts)
    expected, expected_places = plain.max_stretches(x, starts)
    assert (largest.tolist(), places.tolist()) == (expected.tolist(), expected_places.tolist())
    assert (largest[1] == 0).all() and (places[1] == -1).all()
    g = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert rows.spread_maxima(g, places, 9).tolist() == plain.spread_maxima(g, places, 9).tolist()


def test_rows_are_taken_and_added_in_one_go():
    table, out = np.arange(8, dtype=np.float32).reshape(4, 2), np.empty((3, 2), np.float32)
    bias, more = np.array([10, 20], np.float32), np.array([[100, 200]], np.float32)
    for module in (rows, plain):
        module.take_sum(out, table, np.array([3, 0, 1]), bias, more)
        assert out.tolist() == [[116, 227], [10, 21], [12, 23]]
        module.take_sum(out, table, np.array([3, 0, 1]), None, None)
        assert out.tolist() == [[6, 7], [0, 1], [2, 3]]


def test_steps_of_wrong_shapes_are_refused():
    c, gates = np.zeros((2, 3), np.float32), np.zeros((2, 12), np.float32)
    with pytest.raises(ValueError, match="peepholes"):
        steps.lstm_forward(gates, np.zeros(3, np.float32), c, c, c, candidate="tanh", gate="sigmoid", state="tanh")
    with pytest.raises(ValueError, match="gates"):
        steps.lstm_forward(c, np.zeros((3, 3), np.float32), c, c, c, candidate="tanh", gate="sigmoid", state="tanh")
    assert not steps.activate("steep", c)

"""Activations, steps of an LSTM and stretches of rows: the compiled loops against numpy."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import plain, rows, steps
from paddle_base.kernels import recurrent as hot
from trainer.arrays.activations import ACTIVATIONS
from trainer.layers.recurrent import lstm
from trainer.layers.recurrent.step_activations import STEP_ACTIVATIONS

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


def test_tanh_of_a_matrix_is_rounded_where_the_legacy_rounded_it():
    z = np.random.default_rng(1).normal(scale=0.05, size=20000).astype(np.float32)
    power = np.exp(-2 * z.astype(np.float64)).astype(np.float32)
    expected = (2 / (1 + power.astype(np.float64)) - 1).astype(np.float32)
    y = z.copy()
    assert steps.activate("tanh", y)
    assert np.mean(y == expected) > 0.999
    np.testing.assert_allclose(y, expected, atol=6e-8)


@each("width", [1, 7, 63, 64, 83])  # from 64 on, the largest number of a row is found in lanes of 16
def test_softmax_is_rounded_where_the_legacy_rounded_it(width):
    """Powers to float32, their sum one by one, and its inverse as a factor."""
    z = np.random.default_rng(1).normal(scale=3, size=(200, width)).astype(np.float32)
    powers = np.exp((z - z.max(axis=1, keepdims=True)).astype(np.float64)).astype(np.float32)
    shares = np.float32(1) / np.add.accumulate(powers, axis=1)[:, -1:]
    y = z.copy()
    assert steps.softmax(y, -64.0)
    assert np.mean(y == powers * shares) > 0.999
    np.testing.assert_allclose(y, powers * shares, rtol=2e-7)


@each("kinds", [("tanh", "sigmoid", "tanh"), ("relu", "sigmoid", "sigmoid"), ("", "sigmoid", "relu")])
@each("count", [0, 1, 5])
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
        monkeypatch.setattr(hot, "compiled", compiled)
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
        hot.lstm_forward(gates, np.zeros(3, np.float32), c, c, c, candidate="tanh", gate="sigmoid", state="tanh")
    with pytest.raises(ValueError, match="gates"):
        hot.lstm_forward(c, np.zeros((3, 3), np.float32), c, c, c, candidate="tanh", gate="sigmoid", state="tanh")
    assert not steps.activate("steep", c)


@each("size", [3, 16, 36])
@each("live", [[], [1], [9, 9, 6, 2, 1]])
def test_a_run_of_an_lstm_is_its_steps_one_by_one(size, live):
    rng = np.random.default_rng(size)
    names = {"candidate": "tanh", "gate": "sigmoid", "state": "tanh"}
    acts = lstm.LstmActivations(**{key: STEP_ACTIVATIONS[kind] for key, kind in names.items()}, names=names)
    begins = np.cumsum([0, *live])
    n, most = int(begins[-1]), max(live, default=0)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    x, rows, w, bias = draw(n + 2, 4 * size), rng.permutation(n + 2)[:n], draw(size, 4 * size), draw(4 * size)
    peepholes, gradient = draw(3, size), draw(n + 2, size)
    gates, c, h = draw(n, 4 * size), draw(n, size), draw(n, size)
    run = hot.LstmRun(gates, peepholes, c, np.empty_like(c), begins, names)
    run.forward(x, rows, w, bias, h)
    steps_gates, steps_c, steps_h = x[rows] + bias, np.empty_like(c), np.empty_like(h)
    zeros = np.zeros((most, size), np.float32)
    for step, count in enumerate(live):
        this, before = slice(begins[step], begins[step + 1]), slice(begins[step - 1], begins[step - 1] + count)
        if step:
            steps_gates[this] += steps_h[before] @ w
        c_before = steps_c[before] if step else zeros
        lstm.step_forward(steps_gates[this], peepholes, c_before, steps_c[this], steps_h[this], acts)
    for one, other in ((gates, steps_gates), (c, steps_c), (h, steps_h)):
        np.testing.assert_allclose(one, other, atol=1e-5)
    d_c, d_peepholes = np.zeros((most, size), np.float32), np.zeros((3, size), np.float32)
    transposed = np.ascontiguousarray(w.T)
    run.backward(gradient, rows, transposed, d_c, d_peepholes)
    steps_d_c, steps_d_peepholes = np.zeros_like(d_c), np.zeros_like(d_peepholes)
    for step in reversed(range(len(live))):
        this, count = slice(begins[step], begins[step + 1]), live[step]
        d_h = gradient[rows[this]]
        if step + 1 < len(live):
            d_h[: live[step + 1]] += steps_gates[begins[step + 1] : begins[step + 2]] @ transposed
        c_before = steps_c[begins[step - 1] : begins[step - 1] + count] if step else zeros
        lstm.step_backward(
            steps_gates[this],
            peepholes,
            c_before[:count],
            steps_c[this],
            d_h,
            steps_d_c[:count],
            steps_d_peepholes,
            acts,
        )
    for one, other in ((gates, steps_gates), (d_c, steps_d_c), (d_peepholes, steps_d_peepholes)):
        np.testing.assert_allclose(one, other, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [8, 36, 64])
def test_the_products_of_a_run_are_summed_up_before_they_are_added(size):
    rows, huge = 6, 2.0**24  # a half that is added to this is lost
    names = {"candidate": "", "gate": "", "state": ""}
    x = np.zeros((2 * rows, 4, size), np.float32)
    x[:rows, [0, 1, 3]] = 1  # the first step gives h = 1
    x[rows:] = huge
    gates, peepholes, c = np.empty((2 * rows, 4 * size), np.float32), np.zeros((3, size), np.float32), x[:, 0].copy()
    run = hot.LstmRun(gates, peepholes, c, np.empty_like(c), np.array([0, rows, 2 * rows]), names)
    w, bias = np.full((size, 4 * size), 0.5, np.float32), np.zeros(4 * size, np.float32)
    run.forward(x.reshape(2 * rows, -1), np.arange(2 * rows), w, bias, np.empty_like(c))
    assert (gates[rows:] == huge + size / 2).all()


def test_a_run_whose_steps_grow_is_refused():
    zeros = np.zeros((3, 4), np.float32)
    names = {"candidate": "tanh", "gate": "sigmoid", "state": "tanh"}
    run = hot.LstmRun(np.zeros((3, 16), np.float32), zeros, zeros.copy(), zeros.copy(), np.array([0, 1, 3]), names)
    with pytest.raises(ValueError, match="steps"):
        run.forward(np.zeros((3, 16), np.float32), np.arange(3), np.zeros((4, 16), np.float32), zeros[0], zeros.copy())

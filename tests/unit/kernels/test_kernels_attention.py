"""The compiled parts of attention against the same in numpy."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import rows, steps
from trainer.arrays.activations import ACTIVATIONS

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
STARTS = [[0], [0, 0], [0, 3, 3, 4, 9, 9]]


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


@pytest.mark.parametrize("size", [1, 16, 37])
@pytest.mark.parametrize("starts", STARTS)
def test_the_sums_of_rows_and_frames_and_their_gradients(starts, size):
    starts = np.array(starts)
    x, state, v, d = draw(starts[-1], size), draw(len(starts) - 1, size), draw(size), draw(starts[-1], 1)
    exact = steps.tanh_sums(x, state, starts)
    y = steps.tanh_sums(x.astype(np.float32), state.astype(np.float32), starts)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, exact, atol=3e-7)
    singles = (one.astype(np.float32) for one in (d, exact, v))
    for one, other in zip(
        steps.differentiate_tanh_sums(*singles, starts),
        steps.differentiate_tanh_sums(d, exact, v, starts),
        strict=True,
    ):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=5e-6)


@each("size", [1, 16, 37])
@each("starts", STARTS)
def test_the_gradients_of_weighted_sums(starts, size):
    starts = np.array(starts)
    g, w, x = draw(len(starts) - 1, size), draw(starts[-1], 1), draw(starts[-1], size)
    singles = (one.astype(np.float32) for one in (g, w, x))
    for one, other in zip(
        rows.differentiate_weighted_sums(*singles, starts),
        rows.differentiate_weighted_sums(g, w, x, starts),
        strict=True,
    ):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=5e-6)


@each("lengths", [[], [0], [1], [7, 0, 8, 9, 1], [129, 300, 16]])
def test_the_softmax_of_sequences_and_its_gradient_are_those_of_numpy(lengths, monkeypatch):
    starts = np.cumsum([0, *lengths])
    z, g = (draw(starts[-1], 1).astype(np.float32) * scale for scale in (30, 1))
    found = []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(steps, "compiled", compiled)
        y = ACTIVATIONS["sequence_softmax"].forward(z, starts)
        found.append([y, ACTIVATIONS["sequence_softmax"].backward(g, y, z, starts)])
    for one, other in zip(*found, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_array_max_ulp(one, other, 1)


def test_sequences_that_do_not_fit_are_refused():
    y = np.zeros((4, 1), np.float32)
    with pytest.raises(ValueError, match="the sequences do not fit"):
        steps.sequence_softmax(y, np.array([0, 5]), -64.0)
    with pytest.raises(ValueError, match="the sequences do not fit"):
        steps.differentiate_sequence_softmax(y, y, y, np.array([0, 3, 2, 4]))
    x, state = np.zeros((4, 3), np.float32), np.zeros((2, 3), np.float32)
    for starts in ([0, 4], [0, 2, 5], [0, 5, 4], [1, 2, 4]):
        with pytest.raises(ValueError, match="sequences"):
            steps.tanh_sums(x, state, np.array(starts))
        with pytest.raises(ValueError, match="sequences"):
            rows.differentiate_weighted_sums(state, x[:, :1].copy(), x, np.array(starts))
    with pytest.raises(ValueError, match="fit"):
        steps.differentiate_tanh_sums(x[:2, :1].copy(), x, x[0], np.array([0, 2, 4]))

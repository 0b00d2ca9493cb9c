"""Gradients with one number in each row, of a cross entropy, on their way to a softmax."""

import numpy as np
import pytest

from paddle_base import kernels
from paddle_base.kernels import rows, steps
from trainer.arrays.activations import ACTIVATIONS
from trainer.arrays.arguments import DistinctGradient, PickedGradient
from trainer.network.node import DISTINCT, GradientFlows

PICKED = PickedGradient(np.array([2, 0]), np.array([3.0, -4.0]), width=3)
DENSE = [[0, 0, 3], [-4, 0, 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_gradient_of_a_softmax_is_that_of_the_gradient_with_its_zeros(dtype, is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(steps, "compiled", None)
        monkeypatch.setattr(rows, "compiled", None)
    draw, softmax = np.random.default_rng(1), ACTIVATIONS["softmax"]
    y = softmax.forward(draw.normal(size=(5, 37)).astype(dtype))
    picked = PickedGradient(draw.integers(0, 37, 5), draw.normal(size=5).astype(dtype), width=37)
    expected = softmax.backward(picked.to_dense(), y, y)
    np.testing.assert_allclose(softmax.backward_picked(picked, y), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")
def test_columns_outside_of_a_row_are_refused():
    y, values = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    for columns in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="column"):
            steps.differentiate_picked_softmax(y.copy(), values, np.array(columns), y)
    with pytest.raises(ValueError, match="rows"):
        steps.differentiate_picked_softmax(y.copy(), values, np.array([0]), y)


def test_a_gradient_alone_stays_as_it_is():
    flows = GradientFlows({})
    flows.add("x", PICKED)
    assert flows.reach("x")
    assert flows.take_picked("x") is PICKED
    assert flows.take("x") == {}
    flows.add("x", PICKED)
    assert flows.take("x")[""].tolist() == DENSE


def test_further_parts_are_added_to_all_columns():
    ones = np.ones((2, 3))
    for first, second in ((PICKED, ones), (ones, PICKED)):
        flows = GradientFlows({})
        flows.add("x", first)
        flows.add("x", second)
        assert flows.take_picked("x") is None
        assert flows.take("x")[""].tolist() == (ones + DENSE).tolist()
    flows = GradientFlows({})
    flows.add("x", PICKED)
    flows.add("x", DistinctGradient(ones[:1]))
    flows.add("x", ones, "state")
    taken = flows.take("x")
    assert {name: one.tolist() for name, one in taken.items()} == {
        "": DENSE,
        DISTINCT: ones[:1].tolist(),
        "state": ones.tolist(),
    }
    flows.add("x", PICKED, "state")
    assert flows.take("x")["state"].tolist() == DENSE


def test_two_gradients_are_added_and_scaled():
    flows = GradientFlows({})
    flows.add("x", PICKED)
    flows.scale("x", 0.5)
    flows.add("x", PICKED)
    flows.scale("x", 2)
    assert flows.take("x")[""].tolist() == (3 * np.array(DENSE)).tolist()

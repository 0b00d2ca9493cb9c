"""The gradient check itself: on a cost whose derivative is known."""

import numpy as np
import pytest

from trainer.network.check_grads import CheckedVariable, check_grads


def compare(gradient_of):
    x = np.array([[1.0, -2.0], [0.5, 3.0]])
    kept = x.copy()
    variables = [CheckedVariable("x", x, gradient_of(x))]
    (found,) = check_grads(lambda: float((x**3).sum()), variables, np.ones_like, lambda _slope: 1e-4)
    np.testing.assert_array_equal(x, kept)
    return found


def test_a_right_gradient_agrees():
    found = compare(lambda x: 3 * x**2)
    assert abs(found.difference) < 1e-6
    assert found.analytic_delta == pytest.approx(1e-4 * 3 * (1 + 4 + 0.25 + 9))


def test_a_wrong_gradient_differs():
    assert compare(lambda x: 3.3 * x**2).difference == pytest.approx(-1 / 11, rel=1e-4)


def test_a_variable_is_moved_back_where_the_cost_raises():
    x = np.ones(3)

    def cost():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(check_grads(cost, [CheckedVariable("x", x, x.copy())], np.ones_like, lambda _slope: 0.5))
    np.testing.assert_array_equal(x, np.ones(3))

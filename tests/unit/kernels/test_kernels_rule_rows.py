"""The compiled update rules on some rows of the arrays, where they are."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import rules

f = np.float32
FAMILY = (f(0.1), f(0.5), f(0.2), f(1e-6))  # rate, mu, decay, epsilon
ROWS = np.array([1, 2, 6], np.int64)
FACTORS = (np.array([0.9, 0.5, 0.1], f), np.array([0.1, 1, 0.5], f))  # kappa and weight of each row
# arrays of state, numbers, factors of rows
CASES = {
    "momentum": (0, FAMILY[:3], ()),
    "adagrad": (2, FAMILY, ()),
    "decayed_adagrad": (1, FAMILY, FACTORS),
    "rmsprop": (2, (*FAMILY, f(0.1)), FACTORS),
}

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")


def draw(states):
    rng = np.random.default_rng(3)
    arrays = [rng.random((7, 5)).astype(f) for _ in range(3 + states)]  # w, g, state, velocity
    arrays[-2] *= f(0.1)
    return arrays


@each("case", CASES)
@each("has_velocity", [True, False])
def test_named_rows_step_as_copies_of_them_and_the_others_stay(case, has_velocity):
    states, numbers, factors = CASES[case]
    if not has_velocity:
        numbers = (numbers[0], f(0), *numbers[2:])
    whole, before = draw(states), draw(states)
    copies = [array[ROWS] for array in whole]
    if not has_velocity:
        whole[-1] = copies[-1] = None
    assert rules.step(case, whole, (*numbers, *factors), ROWS)
    assert rules.step(case, copies, (*numbers, *(values[:, None] for values in factors)))
    others = np.setdiff1d(np.arange(7), ROWS)
    for array, copy, old in zip(whole, copies, before, strict=True):
        if array is not None:
            assert array[ROWS].tobytes() == copy.tobytes()
            assert array[others].tobytes() == old[others].tobytes()
    assert (whole[0][ROWS] != before[0][ROWS]).all()


@each("case", CASES)
@each("rows", [[1, 2, 7], [-1, 2, 3]])
def test_rows_outside_of_the_arrays_are_refused(case, rows):
    states, numbers, factors = CASES[case]
    with pytest.raises(ValueError, match="a row number is not in the arrays"):
        rules.step(case, draw(states), (*numbers, *factors), np.array(rows, np.int64))


@pytest.mark.parametrize("case", ["decayed_adagrad", "rmsprop"])
def test_factors_of_another_number_of_rows_are_refused(case):
    states, numbers, factors = CASES[case]
    with pytest.raises(ValueError, match="kappa and weight do not have one number for each row"):
        rules.step(case, draw(states), (*numbers, *factors), np.array([1, 2], np.int64))

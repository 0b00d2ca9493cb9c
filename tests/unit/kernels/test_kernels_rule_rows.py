"""The compiled update rules on some rows of the arrays, where they are."""

import numpy as np
import pytest

import kernels
from kernels import rules as hot

f = np.float32
FAMILY = {"rate": f(0.1), "mu": f(0.5), "decay": f(0.2), "epsilon": f(1e-6)}
ROWS = np.array([1, 2, 6], np.int64)
FACTORS = {"kappa": np.array([0.9, 0.5, 0.1], f), "weight": np.array([0.1, 1, 0.5], f)}
# rule, arrays of state, constants, whether there are factors of rows
CASES = {
    "momentum": (hot.momentum, 0, {"rate": f(0.1), "mu": f(0.5), "decay": f(0.2)}, {}),
    "adagrad": (hot.adagrad, 2, FAMILY, {}),
    "decayed_adagrad": (hot.decayed_adagrad, 1, FAMILY, FACTORS),
    "rmsprop": (hot.rmsprop, 2, {**FAMILY, "rest": f(0.1)}, FACTORS),
}

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not built here")


def draw(states):
    rng = np.random.default_rng(3)
    arrays = [rng.random((7, 5)).astype(f) for _ in range(3 + states)]  # w, g, state, velocity
    arrays[-2] *= f(0.1)
    return arrays


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("has_velocity", [True, False])
def test_named_rows_step_as_copies_of_them_and_the_others_stay(case, has_velocity):
    rule, states, constants, factors = CASES[case]
    if not has_velocity:
        constants = {**constants, "mu": f(0)}
    whole, before = draw(states), draw(states)
    copies = [array[ROWS] for array in whole]
    if not has_velocity:
        whole[-1] = copies[-1] = None
    columns = {name: values[:, None] for name, values in factors.items()}
    assert rule(*whole, **constants, **factors, rows=ROWS)
    assert rule(*copies, **constants, **columns)
    others = np.setdiff1d(np.arange(7), ROWS)
    for array, copy, old in zip(whole, copies, before, strict=True):
        if array is not None:
            assert array[ROWS].tobytes() == copy.tobytes()
            assert array[others].tobytes() == old[others].tobytes()
    assert (whole[0][ROWS] != before[0][ROWS]).all()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", [[1, 2, 7], [-1, 2, 3]])
def test_rows_outside_of_the_arrays_are_refused(case, rows):
    rule, states, constants, factors = CASES[case]
    with pytest.raises(ValueError, match="the rows do not go with the arrays"):
        rule(*draw(states), **constants, **factors, rows=np.array(rows, np.int64))


@pytest.mark.parametrize("case", ["decayed_adagrad", "rmsprop"])
def test_factors_of_another_number_of_rows_are_refused(case):
    rule, states, constants, factors = CASES[case]
    with pytest.raises(ValueError, match="the factors do not go with the rows"):
        rule(*draw(states), **constants, **factors, rows=np.array([1, 2], np.int64))

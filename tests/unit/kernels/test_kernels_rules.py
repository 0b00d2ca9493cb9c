"""The compiled update rules give the bits that numpy gives."""

import numpy as np
import pytest

import kernels
from kernels import rules as hot
from pserver import rules

RATE = {"rate": np.float32(0.01)}
FAMILY = {**RATE, "decay": np.float32(0.1), "mu": np.float32(0), "epsilon": np.float32(1e-6)}
COLUMN = np.linspace(0.1, 1, 4, dtype=np.float32)[:, None]
ADAM = {**RATE, "beta1": np.float32(0.9), "beta2": np.float32(0.999)}
# rule, number of arrays of state, velocity (None: the rule has none), constants
CASES = {
    "sgd": ("sgd", 0, None, {**RATE, "decay": np.float32(0)}),
    "sgd with L2": ("sgd", 0, None, {**RATE, "decay": np.float32(0.2)}),
    "momentum": ("momentum", 1, None, {**RATE, "mu": np.float32(0.9), "decay": np.float32(0)}),
    "momentum with L2": ("momentum", 1, None, {**RATE, "mu": np.float32(0.9), "decay": np.float32(0.2)}),
    "adam": ("adam", 2, None, {**ADAM, "epsilon": np.float32(1e-8)}),
    "adamax": ("adamax", 2, None, ADAM),
    "adagrad": ("adagrad", 2, False, FAMILY),
    "adagrad with momentum": ("adagrad", 2, True, {**FAMILY, "mu": np.float32(0.5)}),
    "decayed_adagrad": ("decayed_adagrad", 1, False, {**FAMILY, "kappa": np.float32(0.9), "weight": np.float32(0.1)}),
    "decayed_adagrad by row": ("decayed_adagrad", 1, False, {**FAMILY, "kappa": COLUMN, "weight": 1 - COLUMN}),
    "rmsprop": (
        "rmsprop",
        2,
        False,
        {**FAMILY, "rho": np.float32(0.95), "kappa": np.float32(0.95), "weight": np.float32(0.05)},
    ),
    "rmsprop by row, with momentum": (
        "rmsprop",
        2,
        True,
        {**FAMILY, "mu": np.float32(0.9), "rho": np.float32(0.95), "kappa": COLUMN, "weight": np.float32(1)},
    ),
}
SCRATCHES = {"sgd": 1, "momentum": 1, "adamax": 1}


def take_steps(case, is_compiled, monkeypatch):
    name, states, velocity, constants = CASES[case]
    rng = np.random.default_rng(1)
    arrays = [rng.random((4, 37)).astype(np.float32) for _ in range(2 + states)]
    arrays[1] -= np.float32(0.5)
    arrays[1][0, :5] = 0
    arrays[-1] *= np.float32(0.1) if name == "rmsprop" else np.float32(1)
    if velocity is not None:
        arrays.append(rng.random((4, 37)).astype(np.float32) if velocity else None)
    scratch = [np.empty((4, 37), np.float32) for _ in range(SCRATCHES.get(name, 2))]
    monkeypatch.setattr(hot, "compiled", kernels.compiled if is_compiled else None)
    for _ in range(3):
        getattr(rules, name)(*arrays, *scratch, **constants)
    return [one for one in arrays if one is not None]


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_rule_gives_the_bits_of_numpy(case, monkeypatch):
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    plain = take_steps(case, False, monkeypatch)
    for one, other in zip(take_steps(case, True, monkeypatch), plain, strict=True):
        assert np.isfinite(one).all()
        assert one.tobytes() == other.tobytes()


def test_arrays_that_do_not_fit_are_left_to_numpy():
    w = np.zeros(4, np.float64)
    assert not hot.momentum(w, w, None, rate=1, mu=0, decay=0)
    assert not hot.momentum(np.zeros(8, np.float32)[::2], np.zeros(4, np.float32), None, rate=1, mu=0, decay=0)

"""The compiled update rules give the bits that numpy gives."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import rules
from pserver.optim import adagrad, adam, sgd

f = np.float32
COLUMN = np.linspace(0.1, 1, 4, dtype=f)[:, None]
FAMILY = (f(0.01), f(0), f(0.1), f(1e-6))  # rate, mu, decay, epsilon
MOVING = (f(0.01), f(0.9), *FAMILY[2:])
ADAM = (f(0.01), f(0.9), f(0.999))  # rate, beta1, beta2
NO_VELOCITY = object()
# rule, number of arrays of state, velocity (None: the parameter has none), numbers
CASES = {
    "sgd": (sgd.momentum, 0, None, (f(0.01), f(0), f(0))),
    "sgd with L2": (sgd.momentum, 0, None, (f(0.01), f(0), f(0.2))),
    "momentum": (sgd.momentum, 0, True, (f(0.01), f(0.9), f(0))),
    "momentum with L2": (sgd.momentum, 0, True, (f(0.01), f(0.9), f(0.2))),
    "adam": (adam.adam, 2, NO_VELOCITY, (*ADAM, f(1e-8))),
    "adamax": (adam.adamax, 2, NO_VELOCITY, ADAM),
    "adagrad": (adagrad.adagrad, 2, None, FAMILY),
    "adagrad with momentum": (adagrad.adagrad, 2, True, MOVING),
    "decayed_adagrad": (adagrad.decayed_adagrad, 1, None, (*FAMILY, f(0.9), f(0.1))),
    "decayed_adagrad by row": (adagrad.decayed_adagrad, 1, None, (*FAMILY, COLUMN, 1 - COLUMN)),
    "rmsprop": (adagrad.rmsprop, 2, None, (*FAMILY, f(0.05), f(0.95), f(0.05))),
    "rmsprop by row, with momentum": (adagrad.rmsprop, 2, True, (*MOVING, f(0.05), COLUMN, f(1))),
}


def draw_arrays(case):
    rule, states, velocity, _ = CASES[case]
    rng = np.random.default_rng(1)
    w, g, *state = (rng.random((4, 37)).astype(f) for _ in range(2 + states))
    g -= f(0.5)
    g[0, :5] = 0
    if rule is adagrad.rmsprop:
        state[-1] *= f(0.1)
    if velocity is not NO_VELOCITY:
        state.append(rng.random((4, 37)).astype(f) if velocity else None)
    return w, g, state


@each("case", CASES)
def test_a_compiled_rule_gives_the_bits_of_numpy(case):
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    rule, _, _, numbers = CASES[case]
    (w, g, state), (plain_w, _, plain_state) = draw_arrays(case), draw_arrays(case)
    scratch = [np.empty_like(w) for _ in range(2)]
    for _ in range(3):
        assert rules.step(rule.__name__, (w, g, *state), numbers)
        rule(plain_w, g, plain_state, numbers, scratch)
    for one, other in zip([w, *state], [plain_w, *plain_state], strict=True):
        if one is not None:
            assert np.isfinite(one).all()
            assert one.tobytes() == other.tobytes()


def test_a_gradient_in_a_buffer_that_cannot_be_written_is_read():
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    w, g = np.zeros(4, f), np.frombuffer(np.ones(4, f).tobytes(), f)
    assert rules.step("momentum", (w, g, None), (f(0.5), f(0), f(0)))
    assert w.tolist() == [-0.5] * 4


def test_arrays_of_different_lengths_are_refused():
    if kernels.compiled is None:
        pytest.skip("the compiled module is not built here")
    w, short = np.zeros(4, f), np.zeros(3, f)
    for arrays in ((w, short, None), (w, w, short)):
        with pytest.raises(ValueError, match="the arrays have different lengths"):
            rules.step("momentum", arrays, (f(0.5), f(0), f(0)))


def test_what_does_not_fit_is_left_to_numpy():
    w, numbers = np.zeros(4, np.float64), (1, 0, 0)
    assert not rules.step("momentum", (w, w, None), numbers)
    assert not rules.step("momentum", (np.zeros(8, f)[::2], np.zeros(4, f), None), numbers)
    assert not rules.step("", (np.zeros(4, f), np.zeros(4, f), None), numbers)
    assert not rules.step("adadelta", (np.zeros(4, f), np.zeros(4, f), None), numbers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 5, 60_002])
def test_arrays_of_one_rule_begin_at_different_places_of_a_page(size, dtype):
    arrays = [rules.zeros_apart(size, number, dtype) for number in range(4)]
    assert [one.ctypes.data % 4096 for one in arrays if size] == [0, 1024, 2048, 3072] * bool(size)
    for one in arrays:
        assert one.shape == (size,) and one.dtype == dtype and not one.any() and kernels.fits(one.astype(f))
        assert one.flags.c_contiguous and one.flags.aligned and one.flags.writeable

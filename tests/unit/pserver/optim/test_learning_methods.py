"""Every learning method against loops over scalars in float64, written from the formulas of the specification."""

import math

import numpy as np
import pytest

from paddle_base.runtime.errors import ConfigError
from pserver.optim import adagrad as folding
from pserver.optim.methods import METHODS, check_supported, list_ignored
from pserver.optim.settings import Optimization, ParameterSpec
from pserver.store import partition
from pserver.store.shard import DenseShard

RATE, RHO, EPSILON, BETA1, BETA2, ADAM_EPSILON = 0.05, 0.9, 1e-6, 0.9, 0.999, 1e-8


def build(method, *parameters, per_parameter=False, **settings):
    optimization = Optimization(method, settings.pop("rate", RATE), ada_rou=RHO, **settings)
    parameters = parameters or (ParameterSpec("w", 1),)
    return DenseShard(parameters, partition.whole(parameters), optimization, per_parameter=per_parameter)


def draw(seed, steps, size):
    """Gradients with some zeros, and first values."""
    random = np.random.default_rng(seed)
    gradients = random.standard_normal((steps, size)) * (random.random((steps, size)) < 0.7)
    return gradients.astype(np.float32), random.standard_normal(size).astype(np.float32)


# ----- Scalars: one generator a method, which takes gradients and yields values -----


def momentum(w, mu, decay, rate=lambda n: RATE):
    m, n = 0.0, 0
    while True:
        g = yield w
        n += 1
        m = mu * m - rate(n) * (g + decay * w)
        w += m


def torch_momentum(w, mu, decay):
    return momentum(w, mu, decay, lambda n: RATE if n == 1 else RATE * (1 - mu))


def with_rates(w, mu, decay, next_rate):
    m, n = 0.0, 0
    while True:
        g = yield w
        n += 1
        m = mu * m - RATE * next_rate(g, n) * (g + decay * w)
        w += m


def adagrad(w, mu, decay):
    total = 0.0

    def next_rate(g, n):
        nonlocal total
        total += g * g
        return 1 / math.sqrt(total + EPSILON)

    return with_rates(w, mu, decay, next_rate)


def decayed_adagrad(w, mu, decay):
    q = 0.0

    def next_rate(g, n):
        nonlocal q
        q = RHO * q + (1 if n == 1 else 1 - RHO) * g * g
        return 1 / math.sqrt(q + EPSILON)

    return with_rates(w, mu, decay, next_rate)


def rmsprop(w, mu, decay):
    q = f = 0.0

    def next_rate(g, n):
        nonlocal q, f
        q = RHO * q + (1 if n == 1 else 1 - RHO) * g * g
        f = RHO * f + (1 - RHO) * g
        return 1 / math.sqrt(q - f * f + EPSILON)

    return with_rates(w, mu, decay, next_rate)


def adadelta(w, mu, decay):
    a = d = 0.0

    def next_rate(g, n):
        nonlocal a, d
        a = RHO * a + (1 - RHO) * g * g
        r = math.sqrt((d + EPSILON) / (a + EPSILON))
        d = RHO * d + (1 - RHO) * (g * r) ** 2
        return r

    return with_rates(w, mu, decay, next_rate)


def adam(w, mu, decay):
    m = v = 0.0
    n = 0
    while True:
        g = yield w
        n += 1
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g * g
        w -= RATE * math.sqrt(1 - BETA2**n) / (1 - BETA1**n) * m / (math.sqrt(v) + ADAM_EPSILON)


def adamax(w, mu, decay):
    m = u = 0.0
    n = 0
    while True:
        g = yield w
        n += 1
        m = BETA1 * m + (1 - BETA1) * g
        u = max(BETA2 * u, abs(g))
        w -= RATE / (1 - BETA1**n) * m / u if u else 0.0


SCALARS = {
    "momentum": momentum,
    "torch_momentum": torch_momentum,
    "sparse_momentum": momentum,  # of a dense parameter
    "adagrad": adagrad,
    "decayed_adagrad": decayed_adagrad,
    "rmsprop": rmsprop,
    "adadelta": adadelta,
    "adam": adam,
    "adamax": adamax,
}


def run_scalars(method, gradients, values, mu, decay):
    """The values after every step, element by element."""
    columns = []
    for column, w in zip(gradients.T, values, strict=True):
        steps = SCALARS[method](float(w), mu, decay)
        next(steps)
        columns.append([steps.send(float(g)) for g in column])
    return np.array(columns).T


def test_there_is_a_formula_for_every_method():
    assert set(SCALARS) == set(METHODS)


@pytest.mark.parametrize("mu, decay", [(0.0, 0.0), (0.75, 0.0), (0.0, 0.125), (0.75, 0.125)])
@pytest.mark.parametrize("method", SCALARS)
def test_every_step_is_that_of_the_formula(method, mu, decay):
    gradients, values = draw(3, 30, 40)
    shard = build(method, ParameterSpec("w", 40, momentum=mu, decay_rate=decay))
    shard.values[:] = values
    for number, expected in enumerate(run_scalars(method, gradients, values, mu, decay)):
        shard.step(gradients[number], 1)
        np.testing.assert_allclose(shard.values, expected, rtol=2e-4, atol=5e-6, err_msg=f"step {number + 1}")


@pytest.mark.parametrize(
    "method, expected",
    [
        ("adagrad", [1000.0, 1 / math.sqrt(4 + 1e-6), 1 / math.sqrt(8 + 1e-6)]),
        # the first square has weight 1, of the mean gradient even the first has 1 - rho
        ("decayed_adagrad", [1000.0, 1 / math.sqrt(4 + 1e-6), 1 / math.sqrt(0.9 * 4 + 0.1 * 4 + 1e-6)]),
        ("rmsprop", [1000.0, 1 / math.sqrt(4 - 0.2**2 + 1e-6), 1 / math.sqrt(4 - 0.38**2 + 1e-6)]),
        ("adadelta", [1.0, math.sqrt(1e-6 / (0.4 + 1e-6)), None]),
    ],
)
def test_the_rates_of_elements_are_those_of_the_last_step(method, expected):
    """Without a gradient so far a rate is 1/sqrt(epsilon), adadelta's 1."""
    shard = build(method, ParameterSpec("w", 2))
    shard.step(np.array([0, 2], np.float32), 1)
    first = shard.rates(0, 2)
    shard.step(np.array([0, 2], np.float32), 1)
    second = shard.rates(0, 2)
    assert first == pytest.approx(expected[:2], rel=1e-5)
    if expected[2] is not None:
        assert second[1] == pytest.approx(expected[2], rel=1e-5) and second[0] == pytest.approx(1000, rel=1e-5)


@pytest.mark.parametrize("method", ["momentum", "torch_momentum", "sparse_momentum", "adam", "adamax"])
def test_other_methods_have_no_rates_of_elements(method):
    assert build(method).rates(0, 1) is None


@pytest.mark.parametrize("method", METHODS)
def test_state_exists_only_where_it_is_needed(method):
    assert "velocity" not in build(method).state
    uses_momentum = METHODS[method].uses_momentum
    assert ("velocity" in build(method, ParameterSpec("w", 1, momentum=0.5)).state) is uses_momentum


def test_adagrad_moves_its_recent_squares_away_now_and_then(monkeypatch):
    monkeypatch.setattr(folding, "FOLD_PERIOD", 2)
    shard = build("adagrad")
    sums = []
    for _ in range(3):
        shard.step(np.array([2], np.float32), 1)
        sums.append((float(shard.state["squares_before"][0]), float(shard.state["squares"][0])))
    assert sums == [(0, 4), (8, 0), (8, 4)]


def test_adamax_leaves_elements_that_never_had_a_gradient():
    shard = build("adamax", ParameterSpec("w", 2))
    shard.values[:] = 3
    for _ in range(3):
        shard.step(np.array([0, 1], np.float32), 1)
    assert shard.values[0] == 3 and shard.values[1] == pytest.approx(3 - 3 * RATE, rel=1e-6)


def test_adamaxs_rate_is_formed_in_double():
    """beta1 = 0.9f: 1 - 0.9f**1 is 0.1 less 2.4e-8, in float32 throughout it would be 0.1 less 3.7e-8."""
    shard = build("adamax")
    shard.step(np.array([1], np.float32), 1)
    one, beta = np.float32(1), np.float32(0.9)
    rate = np.float32(float(np.float32(RATE)) / (1 - float(beta)))
    assert shard.values[0] == -(rate * (one - beta))


@pytest.mark.parametrize("method", METHODS)
def test_which_methods_follow_the_schedule(method):
    """adagrad, adam and adamax stay at the configured rate."""
    shards = [
        build(method, learning_rate_schedule=name, learning_rate_args="5:1,10:0.25") for name in ("constant", "manual")
    ]
    for shard in shards:
        for _ in range(2):
            shard.step(np.ones(1, np.float32), 5)
    follows = shards[0].values[0] != shards[1].values[0]
    assert bool(follows) is (method not in ("adagrad", "adam", "adamax"))


def test_the_own_rate_of_a_parameter_multiplies_whatever_the_method():
    for method in METHODS:
        shard = build(method, ParameterSpec("a", 1), ParameterSpec("b", 1, learning_rate=2.0))
        shard.step(np.ones(2, np.float32), 1)
        assert shard.values[1] == pytest.approx(2 * shard.values[0], rel=1e-6), method


# ----- What has no effect, what does not exist -----


def test_an_unknown_method_is_named():
    with pytest.raises(ConfigError, match="'adamax2' is not known; known: adadelta, adagrad"):
        check_supported(Optimization("adamax2"))


def test_a_learning_rate_must_be_a_number():
    with pytest.raises(ConfigError, match="learning_rate is nan"):
        check_supported(Optimization(learning_rate=math.nan))


@pytest.mark.parametrize("method", ["adam", "adamax"])
def test_settings_that_adam_ignores_are_listed_and_those_of_momentum_are_not(method):
    parameters = [ParameterSpec("w", 3, momentum=0.9, decay_rate=1e-3)]
    ignored = list_ignored(parameters, Optimization(method, 1e-3, "exp", 0.5, 100), per_parameter=False)
    assert len(ignored) == 3 and "L2" in " ".join(ignored) and "exp" in ignored[0]
    assert list_ignored(parameters, Optimization("momentum", 1e-3, "exp", 0.5, 100), per_parameter=False) == []
    assert list_ignored([ParameterSpec("w", 3)], Optimization(method, 1e-3, "poly", 0, 0), per_parameter=False) == []


def test_adagrad_ignores_the_schedule_only():
    parameters = [ParameterSpec("w", 3, momentum=0.9, decay_rate=1e-3)]
    (sentence,) = list_ignored(parameters, Optimization("adagrad", 1e-3, "exp", 0.5, 100), per_parameter=False)
    assert "schedule 'exp'" in sentence


def test_adam_uses_l2_where_it_is_applied_apart():
    parameters = [ParameterSpec("w", 3, decay_rate=1e-3, decay_rate_l1=1e-3)]
    assert list_ignored(parameters, Optimization("adam"), per_parameter=True) == []
    assert len(list_ignored(parameters, Optimization("adam"), per_parameter=False)) == 1

"""Update rules by closed forms, schedules by their table, all in float32."""

import math

import numpy as np
import pytest

from pserver.optim.adam import adam, adam_rate
from pserver.optim.settings import Optimization
from pserver.optim.sgd import momentum

f = np.float32
BETAS_AND_EPSILON = (f(0.9), f(0.999), f(1e-8))


def arrays(*values):
    return [np.array([value], np.float32) for value in values]


def momentum_steps(w0, g, *, rate, mu, decay, steps=3):
    w, gradient, m, scratch = arrays(w0, g, 0, np.nan)
    seen = []
    for _ in range(steps):
        momentum(w, gradient, [m], (f(rate), f(mu), f(decay)), [scratch])
        seen.append(float(w[0]))
    return seen


def test_momentum_puts_the_rate_into_the_velocity():
    # m1 = -.5, m2 = .5*m1 - .5, m3 = .5*m2 - .5: exact in binary
    assert momentum_steps(8, 1, rate=0.5, mu=0.5, decay=0) == [7.5, 6.75, 5.875]


def test_momentum_decays_the_weight_before_the_step_and_the_bias_alike():
    # m = .5*m - .5*(1 + .25*w): w 8 -> m -1.5, w 6.5 -> m -2.0625, w 4.4375 -> m -2.0859375
    assert momentum_steps(8, 1, rate=0.5, mu=0.5, decay=0.25) == [6.5, 4.4375, 2.3515625]


def test_a_new_rate_does_not_scale_old_velocity():
    w, g, m, scratch = arrays(0, 1, 0, 0)
    momentum(w, g, [m], (f(1), f(0.5), f(0)), [scratch])
    momentum(w, g, [m], (f(0.25), f(0.5), f(0)), [scratch])
    assert float(m[0]) == -0.75


@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_plain_sgd_is_momentum_of_zero_bit_for_bit(decay):
    random = np.random.default_rng(7)
    w, g = (random.standard_normal(1000).astype(np.float32) for _ in range(2))
    w2, m, scratch = w.copy(), np.zeros_like(w), np.empty_like(w)
    for _ in range(3):
        momentum(w, g, [None], (f(0.1), f(0), f(decay)), [scratch])
        momentum(w2, g, [m], (f(0.1), f(0), f(decay)), [scratch])
    assert w.tobytes() == w2.tobytes()


def adam_by_hand(w, gradients, settings):
    """The formula of the legacy in scalars, with its rounding."""
    beta1, beta2, epsilon = f(settings.adam_beta1), f(settings.adam_beta2), f(settings.adam_epsilon)
    m = v = f(0)
    for n, g in enumerate(gradients, 1):
        power1, power2 = f(float(beta1) ** n), f(float(beta2) ** n)
        alpha = f(f(settings.learning_rate) * np.sqrt(f(1) - power2) / (f(1) - power1))
        m = f(f(beta1 * m) + f(f(f(1) - beta1) * g))
        v = f(f(beta2 * v) + f(f(f(1) - beta2) * f(g * g)))
        w = f(w - f(f(alpha * m) / f(np.sqrt(v) + epsilon)))
    return w


@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_adam_rounds_every_operation_to_float32(steps):
    settings = Optimization("adam", 1e-3)
    gradients = [f(x) for x in np.random.default_rng(steps).standard_normal(steps)]
    w, m, v, one, two = arrays(0.1, 0, 0, 0, 0)
    for n, g in enumerate(gradients, 1):
        rate = adam_rate(1e-3, settings, n)
        adam(w, np.array([g]), [m, v], (rate, *BETAS_AND_EPSILON), [one, two])
    assert w[0] == adam_by_hand(f(0.1), gradients, settings)


def test_adams_first_step_is_the_rate_whatever_the_gradient():
    for g in (1e-3, 1.0, -50.0):
        w, m, v, one, two = arrays(0, 0, 0, 0, 0)
        rate = adam_rate(1e-3, Optimization("adam"), 1)
        adam(w, np.array([g], np.float32), [m, v], (rate, *BETAS_AND_EPSILON), [one, two])
        assert float(w[0]) == pytest.approx(-math.copysign(1e-3, g), rel=5e-4)


def test_adams_constants_are_float32_differences():
    """1 - 0.999f is 0.000999987: in double the step would be off by 1e-5 of itself."""
    assert float(f(1) - f(0.999)) == pytest.approx(0.000999987, abs=1e-9)
    exact = 1e-3 * math.sqrt(1 - 0.999**3) / (1 - 0.9**3)
    assert 1e-6 < abs(float(adam_rate(1e-3, Optimization("adam"), 3)) / exact - 1) < 1e-4

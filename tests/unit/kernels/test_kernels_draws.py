"""Draws of the legacy's generator: compiled, in numpy and one by one they are the same."""

import numpy as np
import pytest
from each import each

from paddle_base import kernels
from paddle_base.kernels import plain, samples
from trainer.arrays.rng import Stream


@each("count", [0, 1, 15, 16, 17, 1000])
@each("state", [0, 1, 0xFFFFFFFF, 675780521])
def test_draws_are_those_of_the_generator_step_by_step(count, state, monkeypatch):
    one_by_one = Stream(state)
    expected = [one_by_one.draw() for _ in range(count)]
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(samples, "compiled", compiled)
        stream = Stream(state)
        assert stream.draws(count).tolist() == expected
        assert stream.state == one_by_one.state


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.75])
def test_masks_keep_what_is_over_the_rate(rate):
    drawn = Stream(3).draws(999)
    drawn[:3] = 0, 2**31 - 1, 2**30
    expected = (drawn / 2**31).astype(np.float32) > np.float32(rate)
    for dtype in (np.float32, np.float64):
        mask = samples.keep(drawn, rate, dtype)
        assert mask.dtype == dtype
        assert (mask == expected).all()
    assert (plain.keep(drawn, rate) == expected).all()

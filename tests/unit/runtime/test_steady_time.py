"""The steps of a machine's clock do not reach what orders events."""

from __future__ import annotations

import time

import pytest

from paddle_base.runtime.health.steady_time import steady_time


@pytest.mark.parametrize("step", [-600.0, 600.0])
def test_a_step_of_the_clock_is_not_seen(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    real, before = time.time, steady_time()
    assert abs(before - real()) < 3600
    monkeypatch.setattr(time, "time", lambda: real() + step)
    assert 0 <= steady_time() - before < 60

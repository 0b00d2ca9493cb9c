"""Which of many equal log lines are written."""

import math

from paddle_base.runtime.rate_limit import RateLimit


def test_the_first_line_is_due_at_once_and_the_next_after_the_period() -> None:
    lines = RateLimit(30.0)
    assert [now for now in range(100, 200, 10) if lines.is_due(now)] == [100, 130, 160, 190]


def test_a_wait_says_nothing_before_its_first_period_has_passed() -> None:
    lines = RateLimit(10.0, start=103.0)
    assert [now for now in range(100, 130) if lines.is_due(now)] == [103, 113, 123]


def test_each_kind_has_its_own_period() -> None:
    lines = RateLimit(30.0)
    said = [(now, kind) for now in (0.0, 20.0, 40.0) for kind in ("a", "b") if now or kind == "a"]
    assert [one for one in said if lines.is_due(*one)] == [(0.0, "a"), (20.0, "b"), (40.0, "a")]


def test_many_kinds_together_have_a_bound_and_are_forgotten() -> None:
    """A peer may cause as many kinds as it likes."""
    lines = RateLimit(30.0, most=5)
    assert [kind for kind in range(100) if lines.is_due(0.0, str(kind))] == [0, 1, 2, 3, 4]
    assert [kind for kind in range(100, 200) if lines.is_due(30.0, str(kind))] == [100, 101, 102, 103, 104]
    assert len(lines._passed) == 5


def test_without_a_period_each_line_is_due_and_with_an_endless_one_only_the_first() -> None:
    assert [RateLimit(0.0).is_due(now) for now in (0.0, 0.0, 1.0)] == [True] * 3
    once, never = RateLimit(math.inf), RateLimit(math.inf, start=math.inf)
    assert [once.is_due(now) for now in (0.0, 1e9)] == [True, False]
    assert not never.is_due(1e9)

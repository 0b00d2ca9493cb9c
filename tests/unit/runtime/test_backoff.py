"""The delays between repeated trials."""

import random
from itertools import islice

import pytest

from paddle_base.runtime.backoff import exponential_backoff


def test_delays_double_up_to_the_longest() -> None:
    assert list(islice(exponential_backoff(0.1, 0.5, draw=lambda: 0.0), 5)) == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])


@pytest.mark.parametrize(("drawn", "first"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_each_delay_is_drawn_between_half_and_all_of_it(drawn: float, first: float) -> None:
    assert next(exponential_backoff(1.0, 8.0, draw=lambda: drawn)) == first


def test_without_spread_nothing_is_drawn_from_chance() -> None:
    assert list(islice(exponential_backoff(1.0, 9.0, factor=3.0, spread=0.0), 4)) == [1.0, 3.0, 9.0, 9.0]


def test_a_delay_takes_no_random_number_from_data_providers():
    """A reconnect to the master changed the order in which a provider shuffled."""
    before = random.getstate()
    next(exponential_backoff(1.0, 8.0))
    assert random.getstate() == before

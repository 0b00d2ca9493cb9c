"""Order, test set and dealing of samples: pure decisions."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_cluster.prepare.split import LabelledLine, deal, hold_out, shuffle

samples = st.lists(st.builds(LabelledLine, st.text(max_size=3), st.sampled_from(["neg", "pos", "none"])), max_size=60)


def numbered(count, classes=1):
    return [LabelledLine(str(i), str(i % classes)) for i in range(count)]


def test_the_order_of_a_seed_is_the_same_on_every_machine():
    assert [s.line for s in shuffle(numbered(8), seed=1)] == ["0", "3", "5", "4", "6", "2", "7", "1"]


def test_another_seed_gives_another_order():
    assert shuffle(numbered(50), seed=1) != shuffle(numbered(50), seed=2)


def test_every_fifth_sample_is_a_test_sample():
    training, test = hold_out(numbered(12), Fraction(1, 5))
    assert [s.line for s in test] == ["4", "9"]
    assert len(training) == 10


@pytest.mark.parametrize(("fraction", "expected"), [("0", 0), ("0.1", 10), ("1/3", 33), ("0.5", 50), ("0.9", 90)])
def test_the_test_set_has_its_share(fraction, expected):
    assert len(hold_out(numbered(100), Fraction(fraction))[1]) == expected


@settings(deadline=None)  # the machine may be busy
@given(samples, st.integers(0, 9))
def test_shuffling_and_holding_out_lose_nothing(these, seed):
    training, test = hold_out(shuffle(these, seed), Fraction(1, 5))
    assert Counter(training + test) == Counter(these)


@settings(deadline=None)  # the machine may be busy
@given(samples, st.integers(1, 7))
def test_shards_differ_by_at_most_one_sample_in_all_and_in_every_class(these, count):
    shards = deal(these, count)
    assert Counter(s for shard in shards for s in shard) == Counter(these)
    for label in (None, "neg", "pos", "none"):
        sizes = [sum(label in (None, s.label) for s in shard) for shard in shards]
        assert max(sizes) - min(sizes) <= 1


def test_a_shard_keeps_the_shuffled_order_and_not_one_class_after_the_other():
    order = shuffle(numbered(90, classes=3), seed=1)
    for shard in deal(order, 3):
        assert shard == [s for s in order if s in shard]
        assert len({s.label for s in shard[:10]}) > 1

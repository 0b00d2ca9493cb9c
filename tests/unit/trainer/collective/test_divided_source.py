"""Batches that several trainers divide: the same ones for any number of trainers, wherever one begins."""

import random

import numpy as np
import pytest
from each import each
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle_base.runtime.errors import DataError
from trainer.collective.divided_source import DividedSource
from trainer.data.loading import OpenedProvider
from trainer.data.provider2 import CacheType, integer_value, provider

ENTRIES = {"a": range(23), "b": range(100, 114)}
SIZE = 5


def count(given_settings, file):
    numbers = list(ENTRIES[file])
    random.shuffle(numbers)  # as providers do
    for number in numbers:
        yield {"x": number}


def make(**options):
    made = provider(input_types={"x": integer_value(1 << 20)}, **options)(count)
    opened = made(list(ENTRIES), is_train=True, input_order=["x"])
    return DividedSource(OpenedProvider(opened, list(ENTRIES), {}, True), 7, lambda: None, "train.list")


def read(source, number, trainers=1, first=0):
    """Return each batch of the rest of a pass: the shares of all trainers, read one after the other by one source."""
    batches = []
    source.go_to(number, first, SIZE)
    while (share := source.next_share(SIZE, 0, 1)) is not None:
        assert share.samples == share.whole
        batches.append(share.slots["x"].ids.tolist())
    return batches


OPTIONS = {
    "all": {},
    "cached": {"cache": CacheType.CACHE_PASS_IN_MEM},
    "a pool": {"pool_size": 11, "min_pool_size": 6},
    "a cached pool": {"pool_size": 11, "cache": CacheType.CACHE_PASS_IN_MEM},
    "units": {"calc_batch_size": lambda sample: 1 + sample[0] % 3},
}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(OPTIONS)), st.integers(0, 3), st.integers(0, 6), st.integers(0, 2))
def test_a_trainer_that_comes_later_finds_the_batches_of_the_others(kind, number, first, earlier):
    old = make(**OPTIONS[kind])
    for one in range(number - earlier, number):
        if one >= 0:
            read(old, one)
    batches = read(old, number)
    assert sorted(number for batch in batches for number in batch) == sorted([*ENTRIES["a"], *ENTRIES["b"]])
    random.random()  # what else this process draws
    first = min(first, len(batches))
    assert read(make(**OPTIONS[kind]), number, first=first) == batches[first:]
    assert read(old, number, first=first) == batches[first:]  # one that goes back


def test_passes_have_different_orders():
    source = make()
    assert read(source, 0) != read(source, 1)


@each("trainers", [1, 2, 3, 7])
@each("kind", ["all", "units"])
def test_the_shares_of_a_batch_are_the_batch(kind, trainers):
    batches = read(make(**OPTIONS[kind]), 2)
    # one after the other: the providers of one process draw from one generator
    shares_of = [read_shares(make(**OPTIONS[kind]), number, trainers) for number in range(trainers)]
    for batch, shares in zip(batches, zip(*shares_of, strict=True), strict=True):
        assert [number for share in shares for number in share.slots["x"].ids.tolist()] == batch
        assert {share.whole for share in shares} == {sum(share.samples for share in shares)}


def read_shares(source, number, trainers):
    source.go_to(2, 0, SIZE)
    return list(iter(lambda: source.next_share(SIZE, number, trainers), None))


def test_a_place_that_is_there_already_is_not_read_again():
    source = make()
    source.go_to(0, 0, SIZE)
    source.next_share(SIZE, 0, 1)
    reader = source._reader
    source.go_to(0, 1, SIZE)
    assert source._reader is reader
    np.testing.assert_array_equal(source.next_share(SIZE, 0, 1).slots["x"].ids, read(make(), 0)[1])


def test_a_pass_with_fewer_batches_than_others_have_trained_is_an_error():
    with pytest.raises(DataError, match="8 batches of pass 0, of which other trainers have trained 9"):
        make().go_to(0, 9, SIZE)

"""Numbers of the data that are none are named when they are read (issue E 19); training named a layer's cost."""

import math

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import DataError
from trainer.arrays.rng import Stream
from trainer.data.provider2 import (
    dense_vector,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    provider,
    sparse_float_vector,
    sparse_float_vector_sequence,
)
from trainer.data.source import DataSource, DataStreams

NAN, INF = math.nan, math.inf


def read(kind, samples, entries=("a.txt", "b.txt")):
    """Return the values of the first batch of a provider that gives these samples for each entry."""

    @provider(input_types={"x": kind}, should_shuffle=False)
    def process(settings, name):
        yield from ({"x": sample} for sample in samples)

    settings = process(list(entries), is_train=True, input_order=["x"])
    source = DataSource(settings, list(entries), shuffled=False, streams=DataStreams(Stream(1), mixing=Stream(1)))
    source.start_pass()
    return source.next_batch(1000)[0]["x"]


@each(
    ("kind", "good", "bad", "message"),
    [
        (dense_vector(2), [1, 2], [1, NAN], r": slot x \(dense_vector\(2\)\): number 2 is nan, but training needs"),
        (dense_vector(2), [1, 2], np.array([INF, 1], np.float32), ": number 1 is inf, "),
        (dense_vector(1), [1], -INF, ": number 1 is -inf, "),
        (dense_vector(4), np.ones((2, 2)), np.array([[1, 2], [NAN, 4]]), ": number 3 is nan, "),
        (sparse_float_vector(3), [(1, 2.0)], [(1, 2.0), (0, NAN)], ": number 2 is nan, "),
        (dense_vector_sequence(2), [[1, 2]], [[1, 2], [3, NAN]], ": item 1: number 2 is nan, "),
        (dense_vector_sub_sequence(1), [[[1]]], [[[1], [2]], [[INF]]], ": item 1: item 0: number 1 is inf, "),
        (sparse_float_vector_sequence(3), [[(1, 1.0)]], [[(1, 1.0)], [(2, INF)]], ": item 1: number 1 is inf, "),
    ],
)
@each("before", [0, 1, 300])
def test_the_sample_is_named_by_its_entry_and_number(kind, good, bad, message, before):
    with pytest.raises(
        DataError, match=rf"sample {before + 1} of a\.txt \(counted from 1\)" + ".*" + message
    ) as caught:
        read(kind, [*[good] * before, bad, good])
    assert caught.value.exit_code == 65


def test_large_numbers_are_finite():
    """Their squares and sums are not."""
    large = [3e38, 3e38, -3e38]
    assert read(dense_vector(3), [large], ["a.txt"]).value.tolist() == np.array([large], np.float32).tolist()

"""Slots that are sequences: rows one after the other, where sequences and sub-sequences begin, and wrong samples."""

import itertools

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import DataError
from trainer.arrays.rng import Stream
from trainer.data.provider2 import (
    CacheType,
    dense_vector_sequence,
    dense_vector_sub_sequence,
    integer_sequence,
    integer_value_sequence,
    integer_value_sub_sequence,
    provider,
    sparse_binary_vector_sequence,
    sparse_binary_vector_sub_sequence,
    sparse_float_vector_sequence,
    sparse_float_vector_sub_sequence,
)
from trainer.data.source import DataSource, DataStreams


def read_batches(kind, samples, size=None, **options):
    def process(settings, file):
        yield from samples

    settings = provider(input_types={"x": kind}, **options)(process)(["f"], is_train=True, input_order=["x"])
    source = DataSource(settings, ["f"], shuffled=False, streams=DataStreams(Stream(1), mixing=Stream(1)))
    source.start_pass()
    batches = []
    while (batch := source.next_batch(size or len(samples))) is not None:
        batches.append(batch[0]["x"])
    return batches


def rows_of(argument):
    """What a batch holds, as lists of plain rows: ids, dense rows, or the dense rows of the sparse ones."""
    if argument.ids is not None:
        return argument.ids.tolist()
    return argument.value.tolist() if argument.value is not None else argument.sparse.to_dense().tolist()


def unravel(argument, starts):
    rows = rows_of(argument)
    return [rows[start:end] for start, end in itertools.pairwise(starts)]


A, B, ZERO = [1.0, 0.5], [2.0, 0.0], [0.0, 0.0]

SEQUENCES = [
    (integer_value_sequence(9), [[3, 1], [], [2]], [[3, 1], [], [2]]),
    (integer_sequence(9), [(3, 1), (8,)], [[3, 1], [8]]),
    (integer_value_sequence(9), [np.array([3, 1]), np.array([2], np.uint8)], [[3, 1], [2]]),
    (integer_value_sequence(9), [[np.int64(3), 0xFFFFFFFF], [-1]], [[3, -1], [-1]]),
    (dense_vector_sequence(2), [[A, B], [], [B]], [[A, B], [], [B]]),
    (dense_vector_sequence(2), [np.array([A, B]), np.zeros((0, 2)), np.array([B], np.float32)], [[A, B], [], [B]]),
    (dense_vector_sequence(2), [np.array([A]), [B, np.array(A, np.float32)]], [[A], [B, A]]),
    (dense_vector_sequence(2), [[], []], [[], []]),
    (sparse_binary_vector_sequence(2), [[[1], [], [0, 1]], [], [[0]]], [[[0, 1], ZERO, [1, 1]], [], [[1, 0]]]),
    (sparse_float_vector_sequence(2), [[[(0, 1), (1, 0.5)], []], [[(0, 2)]]], [[A, ZERO], [B]]),
]


@each("size", [1, 2, 10])
@each(("kind", "samples", "expected"), SEQUENCES)
def test_sequences_come_as_rows_and_where_they_begin(kind, samples, expected, size):
    found = []
    for batch in read_batches(kind, samples, size):
        assert batch.sub_starts is None
        assert (batch.starts[0], batch.starts[-1], batch.starts.dtype) == (0, batch.rows, np.int64)
        assert batch.sequences == min(size, len(expected) - len(found))
        found += unravel(batch, batch.starts)
    assert found == expected


SUB_SEQUENCES = [
    (integer_value_sub_sequence(9), [[[3, 1], [2]], [], [[5]]]),
    (dense_vector_sub_sequence(2), [[[A], [B, A]], [[B]]]),
]


@pytest.mark.parametrize(("kind", "samples"), SUB_SEQUENCES)
def test_sub_sequences_lie_within_sequences(kind, samples):
    (batch,) = read_batches(kind, samples)
    assert unravel(batch, batch.starts) == [list(itertools.chain(*sample)) for sample in samples]
    assert unravel(batch, batch.sub_starts) == [inner for sample in samples for inner in sample]
    assert set(batch.starts.tolist()) <= set(batch.sub_starts.tolist())


def test_sub_sequences_of_sparse_rows():
    (batch,) = read_batches(sparse_binary_vector_sub_sequence(2), [[[[1], []], [[0]]], [[[0, 1]]]])
    assert (batch.starts.tolist(), batch.sub_starts.tolist()) == ([0, 3, 4], [0, 2, 3, 4])
    assert rows_of(batch) == [[0, 1], ZERO, [1, 0], [1, 1]]
    (batch,) = read_batches(sparse_float_vector_sub_sequence(2), [[[[(0, 2)]], [[(0, 1), (1, 0.5)], []]]])
    assert (batch.starts.tolist(), batch.sub_starts.tolist()) == ([0, 3], [0, 1, 3])
    assert rows_of(batch) == [B, A, ZERO]


def test_a_sequence_counts_as_one_sample_unless_its_length_is_its_size():
    samples = [[1] * 3, [2] * 2, [3] * 4]
    assert [one.sequences for one in read_batches(integer_value_sequence(9), samples, 2)] == [2, 1]
    by_words = read_batches(integer_value_sequence(9), samples, 5, calc_batch_size=lambda sample: len(sample[0]))
    assert [one.starts.tolist() for one in by_words] == [[0, 3, 5], [0, 4]]


def test_sequences_pass_through_in_order_and_are_forgotten():
    samples = [[number] * (number % 3) for number in range(20_000)]
    found = [
        ids for one in read_batches(integer_value_sequence(20_000), samples, 7) for ids in unravel(one, one.starts)
    ]
    assert found == samples


@each(
    ("kind", "value", "message"),
    [
        (
            integer_value_sequence(3),
            5,
            r"sample 2 of f \(counted from 1\): slot x \(integer_value_sequence\(3\)\): 5 is no list",
        ),
        (integer_value_sequence(3), None, "None is no list"),
        (integer_value_sequence(3), np.array(2), "is no list"),
        (integer_value_sequence(3), [1, 3], r"item 1: id 3 is not in \[0, 3\)"),
        (integer_value_sequence(3), [1, "word"], "item 1: 'word' is no id"),
        (integer_value_sequence(3), [1, 0.5], "item 1: 0.5 is no id"),
        (dense_vector_sequence(2), [A, [1]], "item 1: it has 1 numbers instead of 2"),
        (dense_vector_sequence(2), np.ones((2, 3)), "item 0: it has 3 numbers instead of 2"),
        (sparse_binary_vector_sequence(3), [[0], [4]], r"item 1: id 4 is not in \[0, 3\)"),
        (sparse_binary_vector_sequence(3), [0], "item 0: 0 is no list|0 is no list"),
        (integer_value_sub_sequence(3), [[0], [1, 7]], r"item 1: item 1: id 7 is not in \[0, 3\)"),
        (integer_value_sub_sequence(3), [[0], 1], "item 1: 1 is no list"),
    ],
)
def test_a_wrong_sequence_is_named_with_its_item(kind, value, message):
    with pytest.raises(DataError, match=message):
        read_batches(kind, [[], value])


def take_plainly(samples, size, state, passes):
    """The legacy's rule for a cached provider, on whole samples: what is taken of a pass is the pool of the next."""
    stream, taken = Stream(state), list(samples)
    for _ in range(passes):
        pool, taken = taken, []
        while pool:
            place = stream.draw() % len(pool)
            pool[0], pool[place] = pool[place], pool[0]
            taken.append(pool.pop(0))
        yield [taken[start : start + size] for start in range(0, len(taken), size)]


def test_sequences_are_shuffled_as_wholes_in_every_cached_pass():
    samples = [[[number] * (number % 3 + 1), [number, number]] for number in range(40)]

    def process(settings, file):
        yield from samples

    options = {"input_types": [integer_value_sub_sequence(40)], "cache": CacheType.CACHE_PASS_IN_MEM}
    settings = provider(**options)(process)(["f"], is_train=True, input_order=["x"])
    source = DataSource(settings, ["f"], shuffled=True, streams=DataStreams(Stream(5), mixing=Stream(1)))
    for expected in take_plainly(samples, 7, state=5, passes=3):
        source.start_pass()
        for batch in expected:
            found = source.next_batch(7)[0]["x"]
            assert unravel(found, found.sub_starts) == [inner for sample in batch for inner in sample]
            assert unravel(found, found.starts) == [list(itertools.chain(*sample)) for sample in batch]
        assert source.next_batch(7) is None


def test_the_stream_stands_where_the_next_draw_belongs():
    """Whoever draws between two batches (dropout) continues the one stream, and the next batch goes on behind."""
    samples = [[number] for number in range(10)]

    def process(settings, file):
        yield from samples

    settings = provider(input_types=[integer_value_sequence(10)])(process)(["f"], is_train=True, input_order=["x"])
    stream, plain = Stream(1), Stream(1)
    source = DataSource(settings, ["f"], shuffled=True, streams=DataStreams(stream, mixing=Stream(1)))
    source.start_pass()
    pool = list(range(10))
    for size in (4, 4, 2):
        expected = []
        for _ in range(size):
            place = plain.draw() % len(pool)
            pool[0], pool[place] = pool[place], pool[0]
            expected.append(pool.pop(0))
        assert source.next_batch(4)[0]["x"].ids.tolist() == expected
        assert stream.draws(3).tolist() == plain.draws(3).tolist()


@pytest.mark.parametrize("by_units", [False, True])
@pytest.mark.parametrize("limits", [{"pool_size": 30}, {"min_pool_size": 30}, {"pool_size": 200, "min_pool_size": 30}])
def test_a_limited_pool_of_sequences_delivers_every_one_once(limits, by_units):
    samples = [[number] * (number % 4) for number in range(5000)]

    def process(settings, file):
        yield from samples

    if by_units:
        limits = {**limits, "calc_batch_size": lambda sample: 1 + len(sample[0])}
    options = {"input_types": [integer_value_sequence(5000)], **limits}
    settings = provider(**options)(process)(["f"], is_train=True, input_order=["x"])
    source = DataSource(settings, ["f"], shuffled=True, streams=DataStreams(Stream(1), mixing=Stream(1)))
    source.start_pass()
    found = []
    while (batch := source.next_batch(16)) is not None:
        found += unravel(batch[0]["x"], batch[0]["x"].starts)
    assert found != samples
    assert sorted(found) == sorted(samples)

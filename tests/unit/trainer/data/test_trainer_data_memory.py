"""The memory of samples: what a pool of limited size holds, and what is read ahead of it."""

import time

import numpy as np
import pytest
from each import each

import paddle_base.kernels.samples
from trainer.arrays.growing import MAPPED_BYTES, Growing
from trainer.arrays.rng import Stream
from trainer.data import pool, reader
from trainer.data.input_types import index_slot
from trainer.data.provider2 import (
    CacheType,
    dense_vector,
    dense_vector_sequence,
    integer_value,
    integer_value_sequence,
    integer_value_sub_sequence,
    provider,
    sparse_binary_vector,
    sparse_float_vector,
    sparse_float_vector_sub_sequence,
)
from trainer.data.reader import SampleChunks, SampleReader
from trainer.data.source import DataSource, DataStreams

WIDTH = 1000
ROW_BYTES = 4 * WIDTH
POOL = 200  # samples of a full pool
SAMPLES = 1500


def make(process, types, *, shuffled=True, **options):
    names = sorted(types)
    settings = provider(input_types=types, **options)(process)(["f"], is_train=True, input_order=names)
    return DataSource(settings, ["f"], shuffled=shuffled, streams=DataStreams(Stream(1), mixing=Stream(1)))


def make_vectors(settings, file):
    yield from ({"x": np.full(WIDTH, number, np.float32)} for number in range(SAMPLES))


def make_sequences(settings, file):
    for number in range(SAMPLES):
        yield {"x": np.full((WIDTH // 20 + number * 37 % (WIDTH // 10), 10), number, np.float32)}


def peak_of_pass(source, size):
    """Return the most bytes that the pool and the queue of the reader hold between two batches of a pass."""
    source.start_pass()
    peak = samples = 0
    while (batch := source.next_batch(size)) is not None:
        samples += batch[1]
        waiting = source._reader._chunks.copy() if source._reader is not None else ()
        peak = max(peak, source._pool.columns.nbytes + sum(chunk.size for chunk in waiting))
    assert samples == SAMPLES
    return peak


@pytest.fixture
def small_steps(monkeypatch):
    """Samples of 4 kB behave as samples of 1 MB with the real constants."""
    for module, name in [(pool, "COMPACT_BYTES"), (reader, "CHUNK_BYTES"), (reader, "LEAST_AHEAD")]:
        monkeypatch.setattr(module, name, ROW_BYTES)


VECTORS, SEQUENCES = (make_vectors, dense_vector(WIDTH)), (make_sequences, dense_vector_sequence(10))


@pytest.mark.parametrize("size", [1, 16, 128])
@pytest.mark.parametrize(("process", "kind"), [VECTORS, SEQUENCES], ids=["vectors", "sequences"])
@pytest.mark.parametrize("options", [{}, {"min_pool_size": 1}, {"shuffled": False}], ids=str)
def test_a_pool_holds_little_more_than_its_samples_and_what_the_next_batch_needs(
    size, process, kind, options, small_steps
):
    """4096 samples were taken before one was deleted: a pool of 200 images of 3 x 224 x 224 took 5.2 GB."""
    growth = 2 if "min_pool_size" in options else 1  # a pool that grows needs two batches for each batch
    most = 1.3 * POOL + growth * size + 2 * reader.FIRST_CHUNK_ROWS
    assert peak_of_pass(make(process, {"x": kind}, pool_size=POOL, **options), size) <= most * ROW_BYTES


@pytest.mark.parametrize("options", [{"pool_size": -1}, {"cache": CacheType.CACHE_PASS_IN_MEM}], ids=str)
def test_all_samples_are_held_once(options, small_steps):
    source = make(make_vectors, {"x": dense_vector(WIDTH)}, **options)
    for _ in range(2):
        assert peak_of_pass(source, 16) == SAMPLES * ROW_BYTES


TYPES = {
    "dense": dense_vector(3),
    "frames": dense_vector_sequence(2),
    "id": integer_value(10_000),
    "ids": integer_value_sequence(10_000),
    "parts": integer_value_sub_sequence(10_000),
    "set": sparse_binary_vector(10_000),
    "sets": sparse_float_vector_sub_sequence(10_000),
    "weights": sparse_float_vector(10_000),
}


def make_all_kinds(settings, file):
    for number in range(300):
        ids = [number + step for step in range(number * 7 % 5)]
        weights = [(one, one / 2) for one in ids]
        yield {
            "dense": [number, 1, 2],
            "frames": [[one, number] for one in ids],
            "id": number,
            "ids": ids,
            "parts": [ids, [], [number]],
            "set": ids,
            "sets": [[weights, []], [weights]],
            "weights": weights,
        }


def describe(argument):
    """Return all that a batch holds in a slot, as lists."""
    sparse = argument.sparse
    arrays = [argument.value, argument.ids, argument.starts, argument.sub_starts]
    arrays += [] if sparse is None else [sparse.offsets, sparse.ids, sparse.values]
    return [None if one is None else one.tolist() for one in arrays]


def read_all(types, **options):
    names = sorted(types)

    def process(settings, file):
        yield from ({name: sample[name] for name in names} for sample in make_all_kinds(settings, file))

    source = make(process, types, **options)
    source.start_pass()
    batches = []
    while (batch := source.next_batch(7)) is not None:
        batches.append(({name: describe(batch[0][name]) for name in names}, batch[1]))
    return batches


FIXED = {name: TYPES[name] for name in ("dense", "id")}


@each("types", [TYPES, FIXED, {"ids": TYPES["ids"]}])
@each("shuffled", [True, False])
@each("units", [None, lambda sample: 1 + len(str(sample)) % 3])
@each("compiled", [paddle_base.kernels.samples.compiled, None])
def test_deleting_taken_samples_changes_no_batch(types, shuffled, units, compiled, monkeypatch):
    monkeypatch.setattr(paddle_base.kernels.samples, "compiled", compiled)
    options = {"shuffled": shuffled, "pool_size": 40, "calc_batch_size": units}
    monkeypatch.setattr(pool, "COMPACT_BYTES", 1 << 40)
    expected = read_all(types, **options)
    monkeypatch.setattr(pool, "COMPACT_BYTES", 1)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 5)
    assert read_all(types, **options) == expected
    assert sum(number for _, number in expected) >= 300


def test_an_array_keeps_its_items_while_it_grows_and_shrinks():
    array, expected = Growing((3,), np.int32), np.empty((0, 3), np.int32)
    for size in (0, 5, MAPPED_BYTES // 12, 1, MAPPED_BYTES // 12 + 7):
        more = np.arange(3 * size, dtype=np.int32).reshape(size, 3) + len(expected)
        array.extend(more)
        expected = np.concatenate([expected, more])
        assert np.array_equal(array.view(), expected)
    assert array.nbytes == expected.nbytes
    rows = np.arange(len(expected) // 2)
    rows[::3] += len(expected) // 2
    array.keep(rows)
    assert np.array_equal(array.view(), expected[rows])


def test_a_reader_is_read_to_its_end_however_much_waits(monkeypatch):
    """A checkpoint of an earlier version may have been made while more chunks waited than now fit."""
    monkeypatch.setattr(reader, "CHUNKS_AHEAD", 2)
    monkeypatch.setattr(reader, "FIRST_CHUNK_ROWS", 1)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 1)
    source = make(lambda settings, file: ({"x": number} for number in range(20)), {"x": index_slot(100)})
    deadline = time.monotonic() + 30

    def check():
        assert time.monotonic() < deadline, "the reader has not ended"

    columns = source._pool.columns
    drawn = SampleChunks(source._provider, (("f", number, [number]) for number in range(20)), columns)
    one = SampleReader(source._provider, drawn, columns, check=check, units_ahead=1)
    one.wait_for_end()
    assert sum(chunk.rows for chunk in iter(one.take, None)) == 20

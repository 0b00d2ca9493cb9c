"""The reading thread: how far it is ahead, how large its chunks are, and how it ends."""

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from paddle_base.runtime.errors import PaddleError
from trainer.arrays.rng import Stream
from trainer.data import reader
from trainer.data.provider2 import dense_vector, dense_vector_sequence, provider
from trainer.data.source import DataSource, DataStreams

WIDTH = 1000
ROW_BYTES = 4 * WIDTH


def make(process, kind):
    settings = provider(input_types={"x": kind})(process)(["f"], is_train=True, input_order=["x"])
    return DataSource(settings, ["f"], shuffled=False, streams=DataStreams(Stream(1), mixing=Stream(1)))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        # rows in the queue, in the chunk in the making, and in the chunk taken last
        ({"FIRST_CHUNK_ROWS": 4, "CHUNK_ROWS": 4, "CHUNKS_AHEAD": 2}, 2 * 4 + 4 + 4),
        ({"FIRST_CHUNK_ROWS": 1, "CHUNK_BYTES": ROW_BYTES, "BYTES_AHEAD": 5 * ROW_BYTES}, 5 + 1 + 1),
        ({"FIRST_CHUNK_ROWS": 1, "CHUNK_BYTES": 3 * ROW_BYTES, "BYTES_AHEAD": 5 * ROW_BYTES}, 5 + 2 + 3 + 3),
    ],
)
def test_reading_is_only_so_far_ahead(monkeypatch, limits, most):
    for name, value in limits.items():
        monkeypatch.setattr(reader, name, value)
    used, ahead = [0], []

    def process(settings, file):
        for number in range(200):
            ahead.append(number - used[0])
            yield {"x": np.full(WIDTH, number, np.float32)}

    source = make(process, dense_vector(WIDTH))
    source.start_pass()
    while (batch := source.next_batch(1)) is not None:
        assert batch[0]["x"].value[0, 0] == used[0]
        used[0] += 1
    assert used == [200]
    assert max(ahead) <= most


def test_chunks_are_as_large_as_their_samples_allow(monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_BYTES", 100 * ROW_BYTES)
    sizes = []
    take = reader.SampleReader.take

    def take_and_note(self):
        chunk = take(self)
        sizes.append(0 if chunk is None else chunk.rows)
        return chunk

    monkeypatch.setattr(reader.SampleReader, "take", take_and_note)

    def process(settings, file):
        yield from (np.zeros((number // 100, WIDTH)) for number in range(1000))

    source = make(process, dense_vector_sequence(WIDTH))
    source.start_pass()
    assert source.next_batch(1000)[1] == 1000
    assert sum(sizes) == 1000
    assert sizes[:2] == [reader.FIRST_CHUNK_ROWS, reader.CHUNK_ROWS]  # empty sequences first
    assert 8 <= sizes[-3] <= 15  # eight or nine rows each in the end


def test_a_closed_source_ends_its_thread():
    ended = threading.Event()

    def process(settings, file):
        try:
            while True:
                yield {"x": [0.0] * WIDTH}
        finally:
            ended.set()

    source = make(process, dense_vector(WIDTH))
    source.start_pass()
    assert source.next_batch(1)[1] == 1
    source.close()
    assert ended.wait(10)


def test_what_the_check_raises_ends_the_waiting():
    """Another side of the job that is gone ends it, also while a provider takes its time."""
    release = threading.Event()

    def process(settings, file):
        release.wait(30)
        yield {"x": [0.0]}

    def check():
        raise ConnectionError("a trainer is gone")

    settings = provider(input_types={"x": dense_vector(1)})(process)(["f"], is_train=True, input_order=["x"])
    source = DataSource(settings, ["f"], shuffled=False, streams=DataStreams(Stream(1), mixing=Stream(1)), check=check)
    source.start_pass()
    try:
        with pytest.raises(ConnectionError, match="a trainer is gone"):
            source.next_batch(1)
    finally:
        release.set()


# ----- a look at the data before the first batch -----


def look(process, files=("a", "b", "c")):
    settings = provider(input_types={"x": dense_vector(1)})(process)(files, is_train=False, input_order=["x"])
    streams = DataStreams(Stream(1), mixing=Stream(1))
    source = DataSource(settings, files, shuffled=False, streams=streams, list_name="test.list")
    source.look()
    return source


def test_a_look_reads_a_sample_of_each_entry_and_leaves_no_trace():
    opened, closed = [], []

    def process(settings, file):
        opened.append(file)
        try:
            for number in range(3):
                yield {"x": [number + random.random() + np.random.rand()]}
        finally:
            closed.append(file)

    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    source = look(process)
    assert opened == closed == ["a", "b", "c"]  # one at a time, so that a long list takes no file descriptors
    assert (random.random(), np.random.rand()) == expected
    source.start_pass()
    assert source.next_batch(100)[1] == 9


@pytest.mark.parametrize("seconds", [-1, 10])
def test_a_look_at_slow_entries_ends_after_the_first_sample(monkeypatch, seconds):
    monkeypatch.setattr(reader, "LOOK_S", seconds)
    opened = []

    def process(settings, file):
        opened.append(file)
        if file != "a":
            yield {"x": [1.0]}

    look(process)
    assert opened == (["a", "b"] if seconds < 0 else ["a", "b", "c"])


def missing_file(settings, file):
    if file == "b":
        Path("/no/such/file").read_bytes()
    yield {"x": [1.0]}


def without_samples(settings, file):
    return
    yield


def wrong_sample(settings, file):
    yield {"x": [1.0] if file == "a" else [1.0, 2.0]}


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (missing_file, "reading 'b': .*No such file"),
        (without_samples, "gives no sample: check test.list and the files that it names"),
        (wrong_sample, "sample 1 of b .* it has 2 numbers instead of 1"),
    ],
)
def test_a_look_finds_the_faults_of_the_data(process, message):
    """A whole pass was trained before the first test found them."""
    with pytest.raises(PaddleError, match=message):
        look(process)


def test_a_source_is_ready_when_its_next_batch_needs_no_wait(monkeypatch):
    monkeypatch.setattr(reader, "FIRST_CHUNK_ROWS", 2)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 2)
    release = threading.Event()

    def process(settings, file):
        for number in range(7):
            if number == 4:
                assert release.wait(30)
            yield {"x": np.full(WIDTH, number, np.float32)}

    source = make(process, dense_vector(WIDTH))
    source.start_pass()
    assert source.next_batch(1)[1] == 1 and source.is_ready(1)
    assert source.next_batch(3)[1] == 3
    assert not source.is_ready(1)
    release.set()
    source._reader.wait_for_end()
    assert source.is_ready(2) and source.next_batch(3)[1] == 3
    assert source.is_ready(2) and source.next_batch(3) is None and source.is_ready(2)

"""Where a data source has got to: another one, in a process of its own, goes on with the same batches."""

import itertools
import json
import random

import numpy as np
import pytest

from trainer.arrays.rng import Stream
from trainer.data import random_states
from trainer.data.provider2 import CacheType, integer_value, provider
from trainer.data.source import DataSource, DataStreams

BY_NAME = {"x": integer_value(1_000_000)}
SIZE = 4
CACHED = {"cache": CacheType.CACHE_PASS_IN_MEM}


def process(settings, file):
    """Samples in an order that Python's and numpy's global generators choose."""
    numbers = list(range(int(file), int(file) + 23))
    random.shuffle(numbers)
    for number in numbers:
        yield {"x": number * 10 + np.random.randint(10)}


def units(sample):
    return sample[0] % 3 + 1


def make(stream, *, shuffled=True, files=("0",), generator=process, **options):
    settings = provider(input_types=BY_NAME, **options)(generator)(list(files), is_train=True, input_order=["x"])
    source = DataSource(settings, list(files), shuffled=shuffled, streams=DataStreams(stream, mixing=Stream(1)))
    source.track()
    return source


class Run:
    """Passes of a source; after every batch somebody else draws from the stream, as dropout does."""

    def __init__(self, source, stream):
        self.source, self.stream = source, stream

    def passes(self, count, begun=False):
        """Yields (pass, batch) -> ids; the state of a checkpoint after each comes with it."""
        for number in range(count):
            if not begun:
                self.source.start_pass()
            begun, batches = False, 0
            while (batch := self.source.next_batch(SIZE)) is not None:
                batches += 1
                self.stream.draw()
                yield batch[0]["x"].ids.tolist(), self.state(batches)
            yield number, self.state(None)

    def state(self, batches):
        position = json.loads(json.dumps(self.source.position(batches)))
        return position, self.stream.state, random_states.write(random_states.take())


CASES = {
    "shuffled": {},
    "in order": {"shuffled": False},
    "cached": CACHED,
    "cached in order": {"shuffled": False, **CACHED},
    "small pool": {"pool_size": 7, "min_pool_size": 5},
    "units": {"calc_batch_size": units},
    "cached units": {"calc_batch_size": units, **CACHED},
    "several entries": {"files": ("0", "100", "200")},
    "cached entries": {"files": ("0", "100", "200"), **CACHED},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_another_source_goes_on_with_the_same_batches_from_everywhere(options, monkeypatch):
    monkeypatch.setattr("trainer.data.pool.COMPACT_BYTES", 1)
    random.seed(5)
    np.random.seed(6)
    stream = Stream(1)
    whole = list(Run(make(stream, **options), stream).passes(3))
    for cut, (_, (position, state, now)) in enumerate(whole[:-1]):
        random.seed()
        np.random.seed()
        stream = Stream(99)
        source = make(stream, **options)
        source.resume(position, SIZE)
        if position["is_read"]:
            random_states.put_back(now)
        stream.state = state
        begun = position["batches"] is not None
        rest = itertools.islice(Run(source, stream).passes(3, begun), len(whole) - cut - 1)
        assert [ids for ids, _ in rest if isinstance(ids, list)] == [
            ids for ids, _ in whole[cut + 1 :] if isinstance(ids, list)
        ]


def test_a_source_that_nobody_tracks_remembers_nothing():
    stream = Stream(1)
    source = make(stream, **CACHED)
    source._tracked = None
    for _ in range(2):
        source.start_pass()
        while source.next_batch(SIZE) is not None:
            pass
    assert source._tracked is None


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({}, "it gives 3 batches, but 5 batches of the pass were trained"),
        (CACHED, "it gives 12 samples, not 40"),
    ],
)
def test_a_provider_that_gives_less_than_before_is_warned_of(options, finding, capsys):
    count = [40]

    def shrinking(settings, file):
        yield from ({"x": number} for number in range(count[0]))

    stream = Stream(1)
    source = make(stream, generator=shrinking, **options)
    for _ in range(2 if options else 1):
        source.start_pass()
        for _ in range(10 if options and not source._complete else 5):
            source.next_batch(SIZE)
        if options and not source._complete:
            assert source.next_batch(SIZE) is None
    position = source.position(5)
    count[0] = 12
    make(Stream(1), generator=shrinking, **options).resume(position, SIZE)
    assert finding in capsys.readouterr().err


def test_both_generators_go_on_with_numbers_of_half_a_pair():
    """The normal distributions give numbers in pairs, of which one waits."""
    random.seed(3)
    np.random.seed(4)
    random.gauss(0, 1), np.random.standard_normal()
    record = json.loads(json.dumps(random_states.write(random_states.take())))
    expected = random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.random()
    random.seed()
    np.random.seed()
    random_states.put_back(record)
    assert (random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.random()) == expected

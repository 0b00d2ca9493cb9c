"""The samples of one task after the other: pools and batches that end with their task."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddle_base.recordio.index import name_chunks
from paddle_base.recordio.reading import RecordIOReader
from paddle_base.recordio.writing import RecordIOWriter
from paddle_base.runtime.errors import DataError
from trainer.arrays.rng import Stream
from trainer.data.loading import OpenedProvider
from trainer.data.provider2 import CacheType, integer_value, provider
from trainer.data.source import DataStreams
from trainer.data.task_source import TaskSource
from trainer.tasks.assembly import TaskAssembly

RANGES = {"a": range(7), "b": range(10, 13), "c": range(20, 22), "empty": range(0)}


def count(settings, file):
    for number in RANGES[file]:
        yield {"x": number}


def make(generator=count, *, shuffled=False, check=lambda: None, **options):
    made = provider(input_types={"x": integer_value(1 << 20)}, **options)(generator)
    opened = made(list(RANGES), is_train=True, input_order=["x"])
    source = OpenedProvider(opened, list(RANGES), {}, shuffled)
    return TaskSource(source, DataStreams(Stream(1), mixing=Stream(1)), check)


def read(source, *files, size=4):
    source.start_task(files, "task 1 of pass 0")
    batches = []
    while (batch := source.next_batch(size)) is not None:
        batches.append(batch[0]["x"].ids.tolist())
        assert len(batches[-1]) == batch[1]
    return batches


def test_the_last_batch_of_a_task_has_what_is_left_of_it():
    source = make()
    assert source.entries == list(RANGES)
    assert read(source, "a") == [[0, 1, 2, 3], [4, 5, 6]]
    assert read(source, "b", "c") == [[10, 11, 12, 20], [21]]
    assert read(source, "empty") == []


def test_a_look_finds_a_fault_of_the_provider_and_keeps_nothing():
    def at_first(bad):
        def process(settings, file):
            if file in bad:
                raise ValueError(f"{file} is odd")
            return count(settings, file)

        return process

    source = make(at_first(["a"]))
    source.look(4)
    assert read(source, "b", "c") == [[10, 11, 12, 20], [21]]
    with pytest.raises(DataError, match="a is odd"):
        make(at_first(list(RANGES))).look(4)


def test_the_trainer_that_sends_the_first_values_looks_before_it_moves_an_earlier_jobs_passes():
    """They had moved when the provider raised its first error."""
    moved = []

    def process(settings, file):
        raise ValueError("odd")

    def begin(source, has_earlier=True):
        directory = SimpleNamespace(has_earlier=has_earlier, begin=lambda: moved.append("moved"))
        settings = SimpleNamespace(opt_config=SimpleNamespace(batch_size=4))
        TaskAssembly._begin_directory(SimpleNamespace(_directory=directory, _source=source, _config=settings))

    with pytest.raises(DataError, match="odd"):
        begin(make(process))
    assert not moved
    begin(make())
    begin(make(process), has_earlier=False)  # nothing is at stake
    assert moved == ["moved"] * 2


def test_only_samples_of_the_task_are_shuffled_among_each_other():
    source = make(shuffled=True)
    for files in (["a"], ["b", "c"], ["a"]):
        found = [number for batch in read(source, *files) for number in batch]
        assert sorted(found) == [number for file in files for number in RANGES[file]]


def test_a_cached_provider_reads_every_task_anew_and_one_warning_says_so(capsys):
    seen = []

    def process(settings, file):
        seen.append((file, settings.cache))
        return count(settings, file)

    source = make(process, cache=CacheType.CACHE_PASS_IN_MEM)
    assert [read(source, "c") for _ in range(2)] == [[[20, 21]]] * 2
    assert seen == [("c", CacheType.NO_CACHE)] * 2
    assert capsys.readouterr().err.count("CACHE_PASS_IN_MEM has no effect with a master") == 1


def test_a_task_may_be_closed_in_its_middle_and_another_begun():
    source = make(min_pool_size=0, pool_size=0)
    source.start_task(["a"], "task 1")
    assert source.next_batch(2)[0]["x"].ids.tolist() == [0, 1]
    source.close()
    assert source.next_batch(2) is None
    assert read(source, "c") == [[20, 21]]


def test_what_is_raised_while_the_provider_is_waited_for_ends_the_waiting():
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(make(check=stop), "a")


@pytest.mark.parametrize("damage", [30, 4], ids=["a record", "a checksum"])
def test_a_damaged_chunk_of_a_recordio_file_fails_its_task_alone(tmp_path, damage):
    path = tmp_path / "numbers"
    with RecordIOWriter(path, max_chunk_bytes=16) as file:
        for number in range(12):
            file.write(b"%04d" % number)
    ranges = list(name_chunks([str(path)]))
    assert len(ranges) == 3
    data = bytearray(path.read_bytes())
    data[len(data) // 3 + damage] ^= 1
    path.write_bytes(data)

    def process(settings, file):
        for record in RecordIOReader(file):
            yield {"x": int(record)}

    source = make(process)
    assert read(source, ranges[0]) == [[0, 1, 2, 3]]
    with pytest.raises(DataError, match=r"numbers: chunk 1 at byte \d+: "):
        read(source, ranges[1])
    assert read(source, ranges[2]) == [[8, 9, 10, 11]]
    assert np.concatenate(read(source, ranges[0], ranges[2])).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]

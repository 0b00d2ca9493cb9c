"""Providers and batches: types, wrappers, the legacy's shuffle order, pools, units, cache, and wrong samples."""

from pathlib import Path

import numpy as np
import pytest
from each import each

from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.arrays.rng import Stream
from trainer.data.loading import check_sizes
from trainer.data.provider2 import (
    CacheType,
    dense_vector,
    integer_value,
    provider,
    sparse_binary_vector,
    sparse_float_vector,
)
from trainer.data.source import DataSource, DataStreams

BY_NAME = {"x": integer_value(1_000_000)}


def make(generator, files=("f",), names=("x",), *, shuffled=False, state=1, is_train=True, arguments=None, **options):
    settings = provider(**{"input_types": BY_NAME, **options})(generator)(
        list(files), is_train=is_train, input_order=list(names), **(arguments or {})
    )
    return DataSource(settings, list(files), shuffled=shuffled, streams=DataStreams(Stream(state), mixing=Stream(1)))


def count_to(n):
    def process(settings, file):
        yield from ({"x": i} for i in range(n))

    return process


def read_pass(source, size):
    source.start_pass()
    batches = []
    while (batch := source.next_batch(size)) is not None:
        batches.append((batch[0]["x"].ids.tolist(), batch[1]))
    return batches


def read_ids(source, size=3):
    return [i for ids, _ in read_pass(source, size) for i in ids]


@pytest.mark.parametrize(("state", "order"), [(1, [1, 3, 6, 4, 5, 7, 2, 0]), (0, [4, 6, 0, 7, 3, 5, 1, 2])])
def test_shuffled_samples_come_in_the_legacys_order(state, order):
    assert read_ids(make(count_to(8), shuffled=True, state=state)) == order


@pytest.mark.parametrize(("state", "after"), [(1, 675780521), (0, 1538207304)])
def test_every_sample_costs_one_draw(state, after):
    stream = Stream(state)
    settings = provider(input_types=BY_NAME)(count_to(8))(["f"], is_train=True, input_order=["x"])
    read_ids(DataSource(settings, ["f"], shuffled=True, streams=DataStreams(stream, mixing=Stream(1))))
    assert stream.state == after


def pick_plainly(pool, stream):
    taken = []
    while pool:
        i = stream.draw() % len(pool)
        pool[0], pool[i] = pool[i], pool[0]
        taken.append(pool.pop(0))
    return taken


def test_a_cached_pass_permutes_the_order_of_the_pass_before():
    source, stream = make(count_to(50), shuffled=True, cache=CacheType.CACHE_PASS_IN_MEM), Stream(1)
    first = pick_plainly(list(range(50)), stream)
    second = pick_plainly(list(first), stream)
    assert [read_ids(source), read_ids(source), read_ids(source)] == [first, second, pick_plainly(list(second), stream)]


def test_an_uncached_pass_begins_in_reading_order_and_goes_on_with_the_stream():
    source, stream = make(count_to(20), shuffled=True), Stream(1)
    assert read_ids(source) == pick_plainly(list(range(20)), stream)
    assert read_ids(source) == pick_plainly(list(range(20)), stream)


def test_a_cached_provider_runs_its_generators_once():
    runs = []

    def process(settings, file):
        runs.append(file)
        yield from ({"x": i} for i in range(5))

    source = make(process, files=("a", "b"), cache=CacheType.CACHE_PASS_IN_MEM)
    assert read_ids(source) == read_ids(source) == [0, 1, 2, 3, 4] * 2
    assert runs == ["a", "b"]


def test_without_cache_the_generators_run_every_pass():
    runs = []

    def process(settings, file):
        runs.append(file)
        yield {"x": 1}

    source = make(process)
    read_ids(source), read_ids(source)
    assert runs == ["f", "f"]


def test_samples_in_order_need_no_draw():
    stream = Stream(7)
    settings = provider(input_types=BY_NAME)(count_to(10))(["f"], is_train=False, input_order=["x"])
    assert read_ids(DataSource(settings, ["f"], shuffled=False, streams=DataStreams(stream, mixing=Stream(1)))) == list(
        range(10)
    )
    assert stream.state == 7


def test_the_last_batch_may_be_smaller():
    assert [units for _, units in read_pass(make(count_to(7)), 3)] == [3, 3, 1]


def test_a_pass_without_samples_has_no_batch():
    assert read_pass(make(count_to(0)), 3) == []


def test_many_samples_pass_through_in_order_and_are_forgotten(monkeypatch):
    monkeypatch.setattr("trainer.data.pool.COMPACT_BYTES", 10_000)
    source = make(count_to(20_000))
    assert read_ids(source, 7) == list(range(20_000))
    assert source._pool.columns.rows < 10_000


def test_a_limited_pool_shuffles_within_itself_and_repeats():
    orders = [read_ids(make(count_to(10_000), shuffled=True, pool_size=100), 16) for _ in range(2)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(10_000))
    assert orders[0] != list(range(10_000))
    assert all(sample < position + 100 + 16 for position, sample in enumerate(orders[0]))


def test_min_pool_size_lets_training_start_before_all_is_read():
    source = make(count_to(1000), shuffled=True, min_pool_size=10)
    source.start_pass()
    first = source.next_batch(4)[0]["x"].ids.tolist()
    assert max(first) < 10


def test_a_pool_that_begins_small_grows_with_what_is_taken():
    orders = [read_ids(make(count_to(1000), shuffled=True, min_pool_size=0, pool_size=50), 4) for _ in range(2)]
    assert orders[0] == orders[1]
    ahead = [sample - position for position, sample in enumerate(orders[0])]
    assert max(ahead[:4]) < 4 < max(ahead[4:40]) <= 40
    assert 25 < max(ahead) < 54  # the pool's limit


def test_several_entries_are_mixed_by_the_seed_and_all_delivered():
    def process(settings, file):
        yield from ({"x": int(file) + i} for i in range(100))

    orders = [read_ids(make(process, files=("0", "100", "200"), shuffled=True)) for _ in range(2)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(300))


def test_units_fill_a_batch_and_may_exceed_it():
    source = make(count_to(6), calc_batch_size=lambda sample: sample[0])
    assert read_pass(source, 5) == [([0, 1, 2, 3], 6), ([4, 5], 9)]


def test_a_sample_that_would_exceed_the_batch_is_put_back():
    source = make(count_to(5), calc_batch_size=lambda sample: sample[0], can_over_batch_size=False)
    assert read_pass(source, 5) == [([0, 1, 2], 3), ([3], 3), ([4], 4)]


def test_a_sample_larger_than_a_batch_is_a_data_error():
    source = make(count_to(9), calc_batch_size=lambda sample: sample[0], can_over_batch_size=False)
    with pytest.raises(DataError, match="a sample counts 6 units, more than the batch size 5"):
        read_pass(source, 5)


def test_cached_units_count_in_later_passes():
    source = make(count_to(6), calc_batch_size=lambda sample: 2, cache=CacheType.CACHE_PASS_IN_MEM)
    assert read_pass(source, 4) == read_pass(source, 4) == [([0, 1], 4), ([2, 3], 4), ([4, 5], 4)]


@pytest.mark.parametrize("sample", [{"a": 1, "b": 2}, [1, 2], (1, 2)])
def test_samples_may_be_dicts_lists_or_tuples(sample):
    def process(settings, file):
        yield sample

    source = make(
        process, names=("a", "b"), input_types={"b": integer_value(9), "a": integer_value(9), "more": integer_value(1)}
    )
    source.start_pass()
    batch, _ = source.next_batch(1)
    assert (batch["a"].ids.tolist(), batch["b"].ids.tolist()) == ([1], [2])


def test_a_single_slot_takes_bare_values():
    def process(settings, file):
        yield [3, 1, 3]
        yield []

    source = make(process, input_types=[sparse_binary_vector(5)])
    source.start_pass()
    x = source.next_batch(2)[0]["x"].sparse
    assert (x.width, x.offsets.tolist(), x.ids.tolist(), x.values) == (5, [0, 3, 3], [3, 1, 3], None)


def test_dense_slots_take_lists_numpy_rows_and_images():
    def process(settings, file):
        yield [1, 2.5, 3, 4]
        yield np.array([1, 2, 3, 4], np.float32)
        yield np.array([[1, 2], [3, 4]], np.float64)

    for size in (1, 3):
        source = make(process, input_types=[dense_vector(4)])
        source.start_pass()
        values = []
        while (batch := source.next_batch(size)) is not None:
            values += batch[0]["x"].value.tolist()
        assert values == [[1, 2.5, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]


def test_sparse_float_slots_take_pairs():
    def process(settings, file):
        yield [(2, 0.5), (0, 1)]
        yield []
        yield [(np.int64(1), np.float32(2))]

    source = make(process, input_types=[sparse_float_vector(3)])
    source.start_pass()
    assert source.next_batch(3)[0]["x"].sparse.to_dense().tolist() == [[1, 0, 0.5], [0, 0, 0], [0, 2, 0]]


def test_ids_may_be_numpy_integers_and_minus_one():
    def process(settings, file):
        yield np.int64(3)
        yield 0xFFFFFFFF

    assert read_ids(make(process)) == [3, -1]


@each(
    ("kind", "value", "message"),
    [
        (
            integer_value(3),
            3,
            r"sample 2 of f \(counted from 1\): slot x \(integer_value\(3\)\): id 3 is not in \[0, 3\)",
        ),
        (integer_value(3), "a", "is no id"),
        (integer_value(3), 1.5, "is no id"),
        (integer_value(3), None, "is no id"),
        (dense_vector(2), [1, 2, 3], r"slot x \(dense_vector\(2\)\): it has 3 numbers instead of 2"),
        (dense_vector(2), ["a", "b"], "no list of numbers"),
        (dense_vector(2), [1, 1e39], "overflow"),
        (sparse_float_vector(3), [(1, -1e39)], "overflow"),
        (sparse_binary_vector(3), [1, -1], "id -1 is not in"),
        (sparse_binary_vector(3), 5, "5 is no list"),
        (sparse_binary_vector(3), [0.5], "are no ids"),
        (sparse_float_vector(3), [(0, 1), (1, "b")], "could not convert"),
        (sparse_float_vector(3), [1, 2], "slot x"),
    ],
)
def test_a_wrong_sample_is_named(kind, value, message):
    good = {0: [0.5] * kind.dim, 1: [1], 2: [(1, 1.0)], 3: 1}[kind.type]

    def process(settings, file):
        yield good
        yield value

    with pytest.raises(DataError, match=message):
        read_pass(make(process, input_types=[kind]), 2)


def test_a_sample_with_too_few_slots_is_named():
    def process(settings, file):
        yield [1]

    with pytest.raises(DataError, match=r"sample 1 of f \(counted from 1\): \[1\] is no list of 2 slots \(a, b\)"):
        read_pass(make(process, names=("a", "b"), input_types=[integer_value(3), integer_value(3)]), 1)


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_wrong_sample_is_counted_from_the_start_of_its_list_entry(shuffled):
    def process(settings, file):
        yield from ({"x": 1} for _ in range(700))
        yield {"x": "a" if file == "second" else 1}

    with pytest.raises(DataError, match=r"sample 701 of second .*: slot x \(integer_value\(1000000\)\): 'a' is no id"):
        read_pass(make(process, files=("first", "second", "third"), shuffled=shuffled), 4)


@pytest.mark.parametrize("check", [False, True])
def test_a_misspelt_slot_is_named_beside_those_that_the_sample_has(check):
    def process(settings, file):
        yield {"xx": [1, 2, 3], "label": 1}

    types = {"x": dense_vector(3), "label": integer_value(2)}
    with pytest.raises(DataError, match=r"the sample has no slot 'x'; it has 'xx', 'label'$"):
        read_pass(make(process, names=("x", "label"), input_types=types, check=check), 1)


def test_a_blank_list_entry_is_named_by_its_line():
    def process(settings, file):
        yield {"x": len(Path(file).read_text())}

    with pytest.raises(DataError, match=r"reading '' \(line 1 of the list is blank\): (test_.*: )?IsADirectoryError"):
        read_pass(make(process, files=("", __file__)), 1)


def test_vectors_must_fit_their_data_layers_and_the_sizes_of_ids_need_not():
    check_sizes({"x": 3, "y": 1, "z": 4}, [dense_vector(3), integer_value(2), sparse_binary_vector(3)], is_by_name=True)
    for kind in (dense_vector(3), dense_vector(5), sparse_binary_vector(5), sparse_float_vector(5)):
        with pytest.raises(ConfigError) as caught:
            check_sizes({"y": 1, "x": 4}, [integer_value(2), kind], is_by_name=True)
        assert str(caught.value) == f"data_layer x has size 4, but the provider's input_types say {kind}"


def test_an_error_of_the_provider_reaches_the_trainer():
    def process(settings, file):
        yield {"x": 1}
        raise KeyError("colour")

    text = (
        r"data provider test_trainer_data::process, reading 'f': (test_.*: )?KeyError: 'colour'"
        "; samples of this entry before it: 1$"  # nothing said in which line of a long file the fault was
    )
    with pytest.raises(DataError, match=text):
        read_pass(make(process), 2)


def test_a_missing_file_of_the_provider_says_where_its_relative_name_was_looked_for():
    """A program that was started in another directory named only the file."""

    def process(settings, file):
        yield {"x": Path("nosuch").read_text()}

    text = f"directory: 'nosuch'; the name is relative to {Path.cwd()}, the directory in which the program was started$"
    with pytest.raises(MissingInputError, match=text):
        read_pass(make(process), 2)


def test_a_missing_data_file_is_a_missing_input():
    def process(settings, file):
        yield {"x": len(Path(file).read_text())}

    with pytest.raises(MissingInputError, match=r"nowhere\.txt"):
        read_pass(make(process, files=("nowhere.txt",)), 2)


def test_exit_in_a_provider_is_an_error():
    def process(settings, file):
        raise SystemExit(0)
        yield

    with pytest.raises(DataError, match="SystemExit"):
        read_pass(make(process), 2)


# ----- the decorator -----


def settings_of(generator=None, names=("x",), arguments=None, **options):
    return provider(**options)(generator or count_to(1))(
        ["f"], is_train=True, input_order=list(names), **(arguments or {})
    )


def test_the_init_hook_gets_everything_and_may_set_everything():
    seen = {}

    def hook(settings, file_list, is_train, input_order, dictionary, **more):
        seen.update(file_list=file_list, is_train=is_train, input_order=input_order, dictionary=dictionary)
        settings.input_types = {"x": integer_value(len(dictionary))}
        settings.pool_size, settings.should_shuffle, settings.colour = 7, "off", "red"
        settings.logger.debug("heard")

    settings = settings_of(init_hook=hook, arguments={"dictionary": {"a": 0}})
    assert seen == {"file_list": ["f"], "is_train": True, "input_order": ["x"], "dictionary": {"a": 0}}
    assert (settings.pool_size, settings.should_shuffle, settings.colour) == (7, False, "red")
    assert settings.slots == [integer_value(1)]


def test_types_of_the_hook_win_over_the_decorators_and_slots_are_the_last_choice():
    def by_types(settings, **_):
        settings.input_types = [integer_value(3)]

    def by_slots(settings, **_):
        settings.slots = [integer_value(4)]

    assert settings_of(input_types=[integer_value(2)], init_hook=by_types).slots == [integer_value(3)]
    assert settings_of(input_types=[integer_value(2)], init_hook=by_slots).slots == [integer_value(2)]
    assert settings_of(init_hook=by_slots).slots == [integer_value(4)]
    assert settings_of(slots=[integer_value(5)]).slots == [integer_value(5)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "no input types"),
        ({"input_types": {"y": integer_value(1)}}, ValueError, "input_types has no x; the network's inputs are x"),
        (
            {"input_types": [integer_value(1)] * 2},
            ValueError,
            r"there are 2 input types; the network has 1 inputs \(x\)",
        ),
    ],
)
def test_input_types_that_do_not_fit_are_explained(options, error, message):
    with pytest.raises(error, match=message):
        settings_of(**options)


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        (None, None),
        (True, True),
        (1, True),
        ("T", True),
        ("true", True),
        ("on", True),
        (False, False),
        (0, False),
        ("f", False),
        ("False", False),
        ("off", False),
        ("perhaps", None),
    ],
)
def test_should_shuffle_takes_the_old_spellings(given, meaning, caplog):
    assert settings_of(input_types=BY_NAME, should_shuffle=given).should_shuffle is meaning


def test_unknown_arguments_of_the_decorator_are_ignored():
    assert settings_of(input_types=BY_NAME, use_seq=True).pool_size == -1


def test_a_dict_from_a_provider_with_listed_types_is_refused():
    with pytest.raises(DataError, match="yields a dict but its input_types are a list"):
        read_pass(make(count_to(2), names=("x", "y"), input_types=[integer_value(2)] * 2), 1)


@each(
    ("kind", "bad"),
    [
        (integer_value(3), 3),
        (dense_vector(2), [1]),
        (dense_vector(2), ["a", 1]),
        (sparse_binary_vector(3), [1, 1]),
        (sparse_binary_vector(3), [5]),
        (sparse_float_vector(3), [(1, 2), (1, 3)]),
        (sparse_float_vector(3), [1]),
        (dense_vector(1), 4),
    ],
)
def test_check_leaves_wrong_samples_out_or_stops(kind, bad):
    good = {0: [0.5] * kind.dim, 1: [1], 2: [(1, 1.0)], 3: 1}[kind.type]

    def process(settings, file):
        yield good
        yield bad
        yield good

    lenient = make(process, input_types=[kind], check=True, check_fail_continue=True)
    lenient.start_pass()
    assert lenient.next_batch(3)[1] == 2
    strict = make(process, input_types=[kind], check=True)
    strict.start_pass()
    with pytest.raises(DataError, match=r"SampleError: sample 2 \(counted from 1\): slot 0"):
        strict.next_batch(3)

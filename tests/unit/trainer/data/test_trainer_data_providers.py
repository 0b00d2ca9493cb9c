"""Providers as jobs name them: modules, list files, init_hook, constant slots, checks, errors of the user's code."""

import logging
import os
from fractions import Fraction
from textwrap import dedent

import numpy as np
import pytest

from paddle.trainer import recordio
from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime.errors import ConfigError, DataError, MissingInputError
from trainer.arrays.rng import Stream
from trainer.config.data_sources import pack_args
from trainer.config.scripts.python2 import use_directories
from trainer.data import loading
from trainer.data.checks import user_code
from trainer.data.loading import check_data, open_source, read_entries
from trainer.data.source import DataStreams


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A function that writes my_provider.py and a list, and opens the data source `process` of it."""
    monkeypatch.chdir(tmp_path)

    def open_job(
        code, inputs=("x",), entries="f\n", sizes=None, args=None, is_train=True, constants=(), mixing=1, is_own=True
    ):
        (tmp_path / "my_provider.py").write_text("from paddle.trainer.PyDataProvider2 import *\n" + dedent(code))
        (tmp_path / "train.list").write_text(entries)
        use_directories(tmp_path, forget=True)
        config = DataConfig(
            type="py2",
            files="train.list",
            load_data_module="my_provider",
            load_data_object="process",
            load_data_args=pack_args(args),
            constant_slots=constants,
        )
        return open_source(
            config,
            [sizes or dict.fromkeys(inputs, 1)],
            is_train=is_train,
            streams=DataStreams(Stream(1), mixing=Stream(mixing)),
            check=lambda: None,
            is_own=is_own,
        )

    yield open_job
    use_directories()


def read_pass(source, size=1000):
    source.start_pass()
    batches = []
    while (batch := source.next_batch(size)) is not None:
        batches.append(batch)
    return batches


def read_ids(source, size=1000):
    return [one for batch, _ in read_pass(source, size) for one in batch["x"].ids.tolist()]


COUNTING = """
    @provider(input_types={"x": integer_value(1000)}, should_shuffle=False)
    def process(settings, name):
        for number in range(4):
            yield {"x": number}
"""


def test_what_old_configs_and_providers_find_by_star_import(job):
    source = job("""
        types = [dense_vector, dense_array, dense_slot, sparse_binary_vector, sparse_non_value_slot,
                 sparse_float_vector, sparse_value_slot, integer_value, index_slot]
        assert [one(5) == one(5, 0) == one(5, seq_type=SequenceType.NO_SEQUENCE) for one in types] == [True] * 9
        assert integer_sequence(3) == integer_value_sequence(3) == index_slot(3, SequenceType.SEQUENCE)
        assert dense_vector_sub_sequence(3) == dense_array(3, SequenceType.SUB_SEQUENCE)
        assert sparse_binary_vector_sub_sequence(3).type == DataType.SparseNonValue
        assert sparse_float_vector_sub_sequence(3) == InputType(3, 2, DataType.SparseValue)
        assert cPickle.loads(cPickle.dumps(3)) == 3 and collections and logging and functools and itertools

        @provider(input_types=[integer_value(1000)], use_seq=False)
        def process(settings, name):
            return iter(map(int, xrange(3)))
    """)
    assert sorted(read_ids(source)) == [0, 1, 2]


def test_entries_are_lines_as_they_are_and_every_one_is_read(job):
    source = job(
        """
        @provider(input_types=[integer_value(1000)], should_shuffle=False)
        def process(settings, name):
            yield len(name)
        """,
        entries="a b\n\n  c \nlast",
    )
    assert read_ids(source) == [3, 0, 4, 4]


def test_a_hook_may_set_every_option(job):
    source = job(
        """
        def hook(settings, file_list, is_train, input_order, words, **more):
            assert (file_list, is_train, input_order, more) == (["f"], True, ["x"], {"other": 2})
            settings.words = words
            settings.slots = [integer_value(1)]
            settings.input_types = {"x": integer_value(len(words))}
            settings.should_shuffle = 0
            settings.pool_size, settings.min_pool_size = 5, 0
            settings.can_over_batch_size = False
            settings.calc_batch_size = lambda sample: 2
            settings.cache = CacheType.CACHE_PASS_IN_MEM
            settings.check = True
            settings.options = settings.function = "any name is free"
            settings.runs = 0
            settings.generator = count

        def count(settings, name):
            settings.runs += 1
            settings.logger.debug("reading %s", name)
            for number in range(settings.runs, len(settings.words)):
                yield number

        @provider(init_hook=hook, check_fail_continue=True)
        def process(settings, name):
            yield "never called"
        """,
        args={"words": ["a", "b", "c", "d"], "other": 2},
    )
    for _ in range(2):  # the second pass is the cached one
        assert [(batch["x"].ids.tolist(), units) for batch, units in read_pass(source, 5)] == [([1, 2], 4), ([3], 2)]


@pytest.mark.parametrize("name", ["pool_size", "min_pool_size"])
def test_a_limit_that_is_no_whole_number_is_refused(job, name):
    code = COUNTING.replace("should_shuffle=False", f"{name}=1e3")
    with pytest.raises(DataError, match=rf"init of .*my_provider::process: .*{name} is 1000.0; it must be a whole num"):
        job(code)


@pytest.mark.parametrize(("is_train", "shuffled"), [(True, True), (False, False)])
def test_samples_are_shuffled_for_training_only_unless_said_otherwise(job, is_train, shuffled):
    code = COUNTING.replace(", should_shuffle=False", "").replace("range(4)", "range(100)")
    assert (read_ids(job(code, is_train=is_train)) != list(range(100))) == shuffled


# ----- several list entries -----

BY_ENTRY = """
    @provider(input_types={"x": integer_value(1000)}, pool_size=1)
    def process(settings, name):
        for number in range(2 if name == "0" else 4):
            yield {"x": int(name) + number}
"""


def mix_plainly(seed, **entries):
    """The rule of the reading thread: draw an entry; where it has ended, the first takes its place."""
    stream, live, read = Stream(seed), list(entries.values()), []
    while live:
        place = stream.draw() % len(live)
        if live[place]:
            read.append(live[place].pop(0))
        else:
            live[place] = live[0]
            del live[0]
    return read


def test_a_thread_picks_among_entries_and_every_pass_has_a_new_one(job):
    source = job(BY_ENTRY, entries="0\n10\n20\n", mixing=7)
    expected = mix_plainly(7, a=[0, 1], b=[10, 11, 12, 13], c=[20, 21, 22, 23])
    assert read_ids(source, 1) == read_ids(source, 1) == expected  # one unit at a time: nothing left to shuffle


# ----- constant slots -----


def test_constant_slots_follow_the_providers_slots(job):
    code = """
        @provider(input_types={"x": integer_value_sequence(1000)}, should_shuffle=False)
        def process(settings, name):
            assert settings.input_order == ["x"]
            yield {"x": [1, 2]}
            yield {"x": [3]}
    """
    source = job(code, inputs=("x", "one", "half"), constants=[1, 0.5])
    ((batch, units),) = read_pass(source)
    assert (list(batch), units) == (["x", "one", "half"], 2)
    assert batch["one"].value.tolist() == [[1], [1], [1]]
    assert batch["half"].value.tolist() == [[0.5], [0.5], [0.5]]
    assert batch["half"].value.dtype == np.float32
    assert batch["one"].starts.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"one": 1}, r"1 constant_slots, and the network has 1 inputs \(one\)"),
        ({"x": 1, "one": 3}, "data_layer one has size 3, but its slot is a constant"),
    ],
)
def test_constant_slots_that_do_not_fit_are_explained(job, sizes, message):
    with pytest.raises(ConfigError, match=message):
        job(COUNTING, sizes=sizes, constants=[1])


# ----- checks -----


def test_a_sample_left_out_is_named_in_a_warning(job, caplog):
    source = job("""
        @provider(input_types=[integer_value_sequence(3)], check=True, check_fail_continue=True)
        def process(settings, name):
            yield [1, -1, 0xFFFFFFFF]
            yield [1, 5]
    """)
    with caplog.at_level(logging.WARNING):
        ((batch, units),) = read_pass(source)
    assert (batch["x"].ids.tolist(), units) == ([1, -1, -1], 1)
    assert caplog.messages == [
        "sample 2 of f (counted from 1) is left out: slot 0 (integer_value_sequence(3)): item 1: 5 is no id below 3"
    ]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "fault"),
    [
        ("dense_vector(4)", "numpy.ones((2, 2), 'f')", "numpy.ones(3, 'f')", "it has 3 numbers instead of 4"),
        (
            "dense_vector_sequence(1)",
            "numpy.ones((3, 1))",
            "numpy.ones((3, 2))",
            "item 0: it has 2 numbers instead of 1",
        ),
        ("integer_value(3)", "numpy.int32(2)", "numpy.int32(3)", "no id below 3"),
        ("integer_value(3)", "0xFFFFFFFF", "-2", "-2 is no id below 3"),
        ("integer_value_sequence(3)", "numpy.arange(3)", "4", "4 is no list"),
        ("integer_value_sub_sequence(3)", "[[1], []]", "[[1], [0, 3]]", "item 1: item 1: 3 is no id below 3"),
        ("sparse_binary_vector_sequence(3)", "[[0, 1], []]", "[[0, 0]]", "item 0: an id occurs twice"),
        ("sparse_float_vector_sequence(3)", "[[(0, 1.5)]]", "[[(3, 1.5)]]", "item 0: 3 is no id below 3"),
    ],
)
def test_checked_samples(job, kind, good, bad, fault):
    source = job(
        f"""
        import numpy

        @provider(input_types=[{kind}], should_shuffle=False, check=True)
        def process(settings, name):
            yield {good}
            yield {bad}
        """,
        sizes={"x": int(kind.split("(")[1][:-1])},
    )
    with pytest.raises(DataError, match=rf"reading 'f': SampleError: sample 2 \(counted from 1\): slot 0 \(.*{fault}"):
        read_pass(source, 2)


# ----- errors -----


def test_a_wrong_sample_is_named_with_what_it_must_be(job):
    source = job("""
        @provider(input_types={"x": integer_value_sequence(3)})
        def process(settings, name):
            yield {"x": [0]}
            yield {"x": [1, 2, 3]}
    """)
    with pytest.raises(DataError) as caught:
        read_pass(source, 1)
    assert str(caught.value) == (
        "data provider my_provider::process yields a sample of a wrong form: sample 2 of f (counted from 1): slot x "
        "(integer_value_sequence(3)): item 2: id 3 is not in [0, 3); it must be a list, each item of it an id below 3"
    )


def test_an_error_names_the_users_lines_from_the_deepest_up(job):
    source = job("""
        def parse(text):
            return int(text)

        @provider(input_types={"x": integer_value(3)})
        def process(settings, name):
            yield {"x": parse(name)}
    """)
    with pytest.raises(DataError) as caught:
        read_pass(source, 1)
    assert str(caught.value) == (
        "data provider my_provider::process, reading 'f': my_provider.py:4 (return int(text)): ValueError: invalid "
        "literal for int() with base 10: 'f'; called at my_provider.py:8 (yield {\"x\": parse(name)})"
    )


@pytest.mark.parametrize(
    "name, line",
    [
        ("provider", "from paddle.trainer.PyDataProvider2 import *"),
        ("integer_value", "from paddle.trainer.PyDataProvider2 import *"),
        ("np", "import numpy as np"),
        ("json", "import json"),
    ],
)
def test_a_provider_that_lacks_an_import_is_told_the_line(name, line):
    with pytest.raises(DataError) as caught, user_code("import of my_provider"):
        eval(name, {})
    assert str(caught.value) == (
        f"import of my_provider: NameError: name '{name}' is not defined; add the line `{line}`"
    )


def test_a_next_behind_the_end_names_the_users_line_once(job):
    source = job("""
        @provider(input_types={"x": integer_value(3)})
        def process(settings, name):
            yield {"x": [next(lines) for lines in [iter([])]][0]}
    """)
    with pytest.raises(DataError) as caught:
        read_pass(source, 1)
    assert str(caught.value) == (
        "data provider my_provider::process, reading 'f': my_provider.py:5 "
        '(yield {"x": [next(lines) for lines in [iter([])]][0]}): RuntimeError: generator raised StopIteration '
        "(end the generator by `return`, and give `next(f)` a default value)"
    )


@pytest.mark.parametrize("statement", ["return {'x': 1}", "print(name)"])
@pytest.mark.parametrize("types", ["{'x': integer_value(3)}", "[integer_value(3)]"])
def test_a_function_without_yield_is_told_to_use_it(job, statement, types):
    source = job(f"""
        @provider(input_types={types})
        def process(settings, name):
            {statement}
    """)
    with pytest.raises(DataError, match=r"my_provider::process, reading 'f': TypeError: .* is no generator.*`yield`"):
        read_pass(source, 1)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            "1.5",
            r"calc_batch_size of the data provider my_provider::process: .*'float' object cannot be interpreted as",
        ),
        ("-1", "my_provider::process gives -1 for a sample"),
        ("sample[7]", r"my_provider\.py:4 .*IndexError"),
    ],
)
def test_a_wrong_size_of_a_sample_is_named(job, result, message):
    source = job(f"""
        def size(sample):
            return {result}

        @provider(input_types={{"x": integer_value(3)}}, calc_batch_size=size)
        def process(settings, name):
            yield {{"x": 1}}
    """)
    with pytest.raises(DataError, match=message):
        read_pass(source, 1)


def test_samples_that_count_nothing_end_the_pass(job):
    source = job(COUNTING.replace("should_shuffle=False", "should_shuffle=False, calc_batch_size=lambda s: s[0] < 2"))
    assert [units for _, units in read_pass(source, 2)] == [2]


@pytest.mark.parametrize("for_test", [False, True])
def test_an_unknown_kind_of_data_is_refused(for_test):
    purpose = "test" if for_test else "training"
    with pytest.raises(ConfigError, match=rf"^{purpose} data of type 'mine' is not supported; .*@provider"):
        check_data(DataConfig(type="mine", for_test=for_test))


def test_only_a_line_feed_ends_a_line_of_the_list(tmp_path):
    """A carriage return inside a name divided the name."""
    (tmp_path / "list").write_bytes(b"a\rb\nc\r\n\n\xff\n")
    assert read_entries(DataConfig(files=str(tmp_path / "list"))) == ["a\rb", "c", "", os.fsdecode(b"\xff")]


def test_a_list_that_is_a_pipe_a_device_or_too_long_is_a_missing_input(tmp_path, monkeypatch):
    """The trainer waited for ever for a writer of the pipe, or used up the memory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(MissingInputError, match=r"cannot be read from .*: Is no regular file; correct its name"):
            read_entries(DataConfig(files=path))
    monkeypatch.setattr(loading, "MOST_OWN_LIST_BYTES", 3)
    (tmp_path / "list").write_text("abc\n")
    with pytest.raises(MissingInputError, match=r"cannot be read from .*: File too large; correct its name"):
        read_entries(DataConfig(files=str(tmp_path / "list")))


def test_a_missing_list_or_module_is_a_missing_input(job, tmp_path):
    config = DataConfig(type="py2", files="no.list", load_data_module="no_module", load_data_object="process")

    def open_config():
        open_source(
            config,
            [{"x": 1}],
            is_train=True,
            streams=DataStreams(Stream(1), mixing=Stream(1)),
            check=lambda: None,
            is_own=True,
        )

    with pytest.raises(MissingInputError, match=r"the list of training data no\.list cannot be read"):
        open_config()
    (tmp_path / "no.list").write_text("")
    with pytest.raises(MissingInputError, match=r"there is no data provider module no_module .*--python_path"):
        open_config()


def test_a_provider_that_a_package_of_this_program_hides_is_told_to_take_another_name(job, tmp_path):
    (tmp_path / "list").write_text("f\n")
    config = DataConfig(type="py2", files="list", load_data_module="trainer", load_data_object="process")
    with pytest.raises(ConfigError, match=r"module trainer has no process; .*; this program has a package trainer"):
        loading.open_provider(config, {"x": 1}, is_train=True, is_own=True)


@pytest.mark.parametrize("is_own", [True, False])
def test_args_are_objects_only_where_the_config_script_of_this_process_made_them(job, is_own):
    """Args of a merged model file went to pickle.loads, which runs what they name: issue E 2."""
    code = """
        def hook(settings, ratio, **more):
            settings.input_types = [dense_vector(1)]
            settings.ratio = ratio

        @provider(init_hook=hook)
        def process(settings, name):
            yield [float(settings.ratio)]
    """
    if is_own:
        ((batch, _),) = read_pass(job(code, args={"ratio": Fraction(1, 4)}))
        assert batch["x"].value.tolist() == [[0.25]]
    else:
        with pytest.raises(ConfigError, match=r"args of the data provider my_provider::process in the model file"):
            job(code, args={"ratio": Fraction(1, 4)}, is_own=False)


def test_slots_by_name_from_the_hook(job):
    source = job(
        """
        def hook(settings, **kwargs):
            settings.slots = {"source": integer_value_sequence(9), "line": integer_value_sequence(2)}

        @provider(init_hook=hook, pool_size=50000)
        def process(settings, name):
            yield {"source": [0, 5, 1], "line": [1]}
        """,
        inputs=("source", "line"),
    )
    ((batch, units),) = read_pass(source)
    assert (batch["source"].ids.tolist(), batch["line"].ids.tolist(), units) == ([0, 5, 1], [1], 1)


READING = """
    from paddle.trainer.recordio import reader
    @provider(input_types={"x": integer_value(1000)}, should_shuffle=False)
    def process(settings, name):
        for record in reader(name):
            yield {"x": int(record)}
"""


@pytest.fixture
def numbers(tmp_path):
    """A RecordIO file of the numbers 0 to 99 in ten chunks."""
    with recordio.writer(tmp_path / "numbers", recordio.Compression.GZIP, 20) as file:
        for number in range(100):
            file.write(b"%02d" % number)
    return tmp_path / "numbers"


def test_a_provider_takes_the_records_of_files_and_of_ranges_of_them(job, numbers):
    ranges = [*recordio.index(numbers).split(4), recordio.index(numbers).range(15, 3)]
    source = job(READING, entries="".join(f"{one}\n" for one in [*ranges, numbers]))
    assert read_ids(source) == [*range(100), 15, 16, 17, *range(100)]
    assert [one.count for one in ranges] == [40, 40, 20, 3]


def test_a_damaged_chunk_ends_the_pass_and_is_named(job, numbers):
    second = recordio.index(numbers).chunks[1]
    content = bytearray(numbers.read_bytes())
    content[second.start] ^= 1
    numbers.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{numbers}: chunk 1 at byte {second.offset}: the CRC-32 of .*; take an"):
        read_ids(job(READING, entries=f"{numbers}\n"))
    with pytest.raises(MissingInputError, match="the RecordIO file absent cannot be read: No such file"):
        read_ids(job(READING, entries="absent\n"))


# ----- what is known before the first sample -----


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ("a\nb\nc\n", ""),
        ("a\nb\nmissing\n", "train.list: line 3 ('missing'): there is no such file, although 2 other lines name files"),
        ("a\nno\nb\nnot\nc\n", "line 2 ('no'), and 1 more: there is no such file, although 3 other lines name files"),
        ("a\n1\n2\n", ""),  # most entries are no files
    ],
)
def test_an_absent_file_of_a_list_is_named_before_it_is_due(job, tmp_path, capsys, entries, told):
    for name in "abc":
        (tmp_path / name).touch()
    job("@provider(input_types=[dense_vector(1)])\ndef process(settings, file):\n    yield [1.0]\n", entries=entries)
    log = capsys.readouterr().err
    assert told in log and ("no such file" in log) == bool(told)


@pytest.mark.parametrize(("layer", "declared", "is_told"), [(10, 127, True), (1, 127, False), (127, 10, False)])
def test_a_type_with_more_ids_than_its_data_layer_is_named_at_the_start(job, capsys, layer, declared, is_told):
    """It was known only when such an id came."""
    code = (
        f"@provider(input_types=[integer_value({declared})])\ndef process(settings, file):\n    yield {min(layer, 9)}\n"
    )
    source = job(code, sizes={"x": layer})
    log = capsys.readouterr().err
    assert ("data_layer x has size 10, but the provider's type integer_value(127) has ids up to 126" in log) == is_told
    read_pass(source)
    assert capsys.readouterr().err == ""


# ----- what the first samples contain -----


@pytest.mark.parametrize(
    ("kind", "value", "finding"),
    [
        ("integer_value_sequence(5000)", "[]", "is empty in all of the first 100 samples"),  # bytes find no word
        ("sparse_binary_vector(5000)", "[]", "is empty in all of the first 100 samples"),
        ("sparse_float_vector_sequence(5000)", "[[], []]", "is empty in all of the first"),
        ("dense_vector_sequence(2)", "[]", "is empty in all of the first 100 samples"),
        ("integer_value_sequence(5000)", "[0] * (1 + i % 7)", "has only 0 of 5000 ids in all of the first 100 samples"),
        ("integer_value_sub_sequence(5000)", "[[0, 2], [2, 1]]", "has only 0, 1, 2 of 5000 ids in all of the first"),
        ("sparse_binary_vector(5000)", "[4999]", "has only 4999 of 5000 ids in all of the first"),
        ("integer_value_sequence(5)", "[3] * (1 + i % 7)", "has only 3 of 5 ids in all of the first 100 samples"),
        ("integer_value(5)", "3", "has the same value in all of the first 100 samples, 3, so nothing is learnt"),
        ("dense_vector(2)", "[0.5, 2]", "has the same value in all of the first 100 samples, [0.5, 2.0], so"),
        ("integer_value(5)", "int(i == 99)", ""),
        ("integer_value_sequence(5)", "[i % 2] * 3", ""),  # a few tags are no text
        ("integer_value_sequence(5000)", "[i % 4] * 3", ""),
        ("sparse_float_vector(1)", "[(0, i)]", ""),
        ("sparse_binary_vector(5)", "[0] if i % 2 else []", ""),
        ("dense_vector(2)", "[i, 2]", ""),
    ],
)
def test_a_slot_from_which_nothing_is_learnt_is_named_after_the_first_samples(job, capsys, kind, value, finding):
    """Training went on in silence, with status 0."""
    size = int(kind.partition("(")[2][:-1])
    loop = f"    for i in range(COUNT):\n        yield {value}\n"
    code = f"@provider(input_types=[{kind}])\ndef process(settings, file):\n{loop}"
    source = job(code.replace("COUNT", "100"), sizes={"x": size})
    for _ in range(2):
        assert sum(units for _, units in read_pass(source)) == 100
    log = capsys.readouterr().err
    assert log.count("of the first") == bool(finding) and (not finding or f"slot x ({kind}) {finding}" in log)
    for count, is_train in (("9", True), ("100", False)):  # too few samples to tell, and test data
        read_pass(job(code.replace("COUNT", count), sizes={"x": size}, is_train=is_train))
        assert "of the first" not in capsys.readouterr().err


def test_a_short_pass_is_judged_at_its_end(job, capsys):
    code = "@provider(input_types=[integer_value(5)])\ndef process(settings, file):\n    yield from [3] * 12\n"
    read_pass(job(code, sizes={"x": 5}))
    assert "has the same value in all of the first 12 samples, 3" in capsys.readouterr().err

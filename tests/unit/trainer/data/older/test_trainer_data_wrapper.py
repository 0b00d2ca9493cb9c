"""Data of type `py`: providers of PyDataProviderWrapper, in the style of the public jobs that used them until 2017."""

import pickle
import random
from itertools import chain
from textwrap import dedent

import numpy as np
import pytest
from each import each

from paddle_base.proto.DataConfig_pb2 import DataConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.rng import Stream
from trainer.collective.divided_source import DividedSource
from trainer.config.data_sources import pack_args
from trainer.config.scripts.python2 import use_directories
from trainer.data import random_states
from trainer.data.loading import open_provider, open_source
from trainer.data.source import DataStreams
from trainer.data.task_source import TaskSource


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A function that writes my_provider.py and a list, and opens the data source `process` of it."""
    monkeypatch.chdir(tmp_path)

    def open_job(code, sizes, entries="f\n", args=None, is_own=True, is_train=True, opens=open_source, **fields):
        (tmp_path / "my_provider.py").write_text("from paddle.trainer.PyDataProviderWrapper import *\n" + dedent(code))
        (tmp_path / "train.list").write_text(entries)
        use_directories(tmp_path, forget=True)
        config = DataConfig(
            type="py",
            files="train.list",
            load_data_module="my_provider",
            load_data_object="process",
            load_data_args=pack_args(args),
        )
        config.MergeFrom(DataConfig(**fields))
        if opens is open_provider:
            return open_provider(config, sizes, is_train=is_train, is_own=is_own)
        return open_source(
            config,
            [sizes],
            is_train=is_train,
            streams=DataStreams(Stream(1), mixing=Stream(1)),
            check=lambda: None,
            shuffles=is_train,
            is_own=is_own,
        )

    yield open_job
    use_directories()


def read(source, size=1000):
    source.start_pass()
    batches = []
    while (batch := source.next_batch(size)) is not None:
        batches.append(batch)
    return batches


def read_ids(source, size=1000):
    return [batch["x"].ids.tolist() for batch, _ in read(source, size)]


# ----- The slots -----


def test_a_job_of_words_with_a_hook_that_reads_its_dictionary(job):
    """quick_start's first form: a bag of words and a label; the dictionary comes from the args of the config."""
    source = job(
        """
        @init_hook_wrapper
        def hook(obj, dictionary, file_list, **kwargs):
            assert kwargs == {"unused": 1} and file_list == ("a", "b")
            obj.words = dictionary
            obj.slots = (SparseNonValueSlot(len(obj.words)), IndexSlot(2))
            obj.logger.info("dictionary of %d words" % len(obj.words))

        @provider(init_hook=hook, should_shuffle=False)
        def process(obj, file_name):
            for line in ["1\\tgood film", "0\\tbad film oh"]:
                label, text = line.split("\\t")
                yield filter(lambda one: one is not None, map(obj.words.get, text.split(" "))), int(label)
        """,
        {"word": 3, "label": 2},
        entries="a\nb\n",
        args={"dictionary": {"good": 0, "bad": 1, "film": 2}, "unused": 1},
    )
    ((batch, units),) = read(source)
    assert (units, batch["label"].ids.tolist()) == (4, [1, 0, 1, 0])
    assert batch["word"].sparse.ids.tolist() == [0, 2, 1, 2, 0, 2, 1, 2]
    assert batch["word"].starts is None


def test_a_job_of_videos_has_sequences_of_frames_and_of_one_label(job):
    source = job(
        """
        import numpy as np

        @provider(slots=[DenseSlot(4), IndexSlot(7)], use_seq=True, should_shuffle=False, pool_size=PoolSize(20))
        def process(obj, file_name):
            yield np.ones((3, 4), "float32"), [5]
            yield [[1, 2, 3, 4.5], [5, 6, 7, 8]], 6
        """,
        {"rgb": 4, "label": 7},
    )
    ((batch, units),) = read(source)
    assert units == 2 and batch["rgb"].starts.tolist() == [0, 3, 5] and batch["rgb"].value[3, 3] == 4.5
    assert (batch["label"].starts.tolist(), batch["label"].ids.tolist()) == ([0, 1, 2], [5, 6])


def test_a_job_of_line_images_counts_its_batch_by_calc_batch_size(job):
    """OCR: an image as a sequence of columns, and the characters; a batch counts columns."""
    source = job(
        """
        def slots(obj, *file_list, **kwargs):
            assert file_list == ("f",) and kwargs == {}
            return [DenseSlot(2), IndexSlot(30)]

        @provider(slots=slots, use_seq=True, should_shuffle=False, calc_batch_size=lambda data: len(data[0]),
                  can_over_batch_size=False, debug=True)
        def process(obj, file_name):
            for width in xrange(1, 5):
                yield [[[0.5, width]] * width, range(width)]
        """,
        {"image": 2, "characters": 30},
    )
    batches = read(source, size=5)
    assert [units for _, units in batches] == [3, 3, 4]
    assert [batch["characters"].starts.tolist() for batch, _ in batches] == [[0, 1, 3], [0, 3], [0, 4]]


def test_every_type_of_slot_with_and_without_sequences(job):
    """The five slots of v0.10's own test; no layer reads a text."""
    plain = """
        @provider(slots=[SparseNonValueSlot(10), DenseSlot(2), SparseValueSlot(10), StringSlot(1), IndexSlot(3)],
                  use_seq={0})
        def process(obj, file_name):
            yield {1}
            yield {1}
    """
    one = '[[3, 5], (0.5, 2), [(1, 0.25), (9, 4)], "text", 2]'
    sizes = {"bits": 10, "dense": 2, "values": 10, "text": 1, "label": 3}
    ((batch, _),) = read(job(plain.format(False, one), sizes))
    assert batch["bits"].sparse.ids.tolist() == [3, 5, 3, 5] and batch["dense"].value.tolist() == [[0.5, 2]] * 2
    assert batch["values"].sparse.values.tolist() == [0.25, 4, 0.25, 4] and batch["label"].ids.tolist() == [2, 2]
    assert batch["text"].ids.tolist() == [-1, -1]
    sequence = '[[[3], []], [(0.5, 2)], [[(1, 0.25)], [(9, 4)]], ["a", "b"], [2, 1]]'
    ((batch, _),) = read(job(plain.format(True, sequence), sizes))
    assert [batch[name].starts.tolist() for name in sizes] == [[0, 2, 4], [0, 1, 2], [0, 2, 4], [0, 2, 4], [0, 2, 4]]
    nested = "[[[[3], []], [[4]]], [[(0.5, 2)], []], [[], [[(1, 0.25)], [(9, 4)]]], [['a'], ['b', 'c']], [[2, 1], [0]]]"
    ((batch, _),) = read(job(plain.format(True, nested), sizes))
    found = {name: (batch[name].starts.tolist(), batch[name].sub_starts.tolist()) for name in sizes}
    assert found == {
        "bits": ([0, 3, 6], [0, 2, 3, 5, 6]),
        "dense": ([0, 1, 2], [0, 1, 1, 2, 2]),
        "values": ([0, 2, 4], [0, 0, 2, 2, 4]),
        "text": ([0, 3, 6], [0, 1, 3, 4, 6]),
        "label": ([0, 3, 6], [0, 2, 3, 5, 6]),
    }


def test_the_only_slot_may_come_without_its_list(job):
    source = job(
        """
        @provider(slots=[IndexSlot(9)], should_shuffle=False)
        def process(obj, file_name):
            yield [4]
            yield (5,)
            yield 6
        """,
        {"x": 9},
    )
    assert read_ids(source) == [[4, 5, 6]]


def test_the_size_of_the_data_layer_counts_for_ids(job, capsys):
    """As with PyDataProvider2: old providers declare sizes that are wrong."""
    code = """
        @provider(slots=[IndexSlot(3)], should_shuffle=False)
        def process(obj, file_name):
            yield [4]
    """
    assert read_ids(job(code, {"x": 5})) == [[4]]
    assert "slot x (integer_value(3)) has the id 4, which is not below the size of its type" in capsys.readouterr().err


# ----- The order -----

COUNTING = """
    import random

    @provider(slots=[IndexSlot(1000)]{0})
    def process(obj, file_name):
        for number in range(6):
            yield [100 * ord(file_name) - 9700 + number]
"""


def python_2_shuffle(items):
    """The loop of random.shuffle of Python 2.7."""
    items = list(items)
    for last in reversed(range(1, len(items))):
        other = int(random.random() * (last + 1))
        items[last], items[other] = items[other], items[last]
    return items


def expected(*pools):
    return [one for pool in pools for one in python_2_shuffle(pool)]


A, B, C = (list(range(start, start + 6)) for start in (0, 100, 200))
ABC = A + B + C


@each(
    "options, pools",
    [
        ("", (A, B, C)),
        (", pool_size=2", (A + B, C)),
        (", pool_size=-1", (ABC,)),
        (", pool_size=PoolSize(4)", (ABC[:4], ABC[4:8], ABC[8:12], ABC[12:16], ABC[16:])),
        (", pool_size=PoolSize(100)", (ABC,)),
        (", pool_size=PoolSize(__import__('sys').maxint)", (ABC,)),
        (", pool_size=PoolSize(1e2)", (ABC,)),
        (", pool_size=PoolSize(float('inf'))", (ABC,)),
        (", init_hook=lambda obj, *files, **more: setattr(obj, 'pool_size', 3)", (ABC,)),
    ],
)
def test_each_pool_is_shuffled_as_python_2_did(job, options, pools):
    """The first pool has pool_size files, a later one as many samples; PoolSize counts samples."""
    source = job(COUNTING.format(options), {"x": 1000}, entries="a\nb\nc\n")
    for _ in range(2):  # each pass begins with the pool of the first pass
        random.seed(5)
        found = read_ids(source, 4)
        assert [len(one) for one in found] == [4, 4, 4, 4, 2]
        random.seed(5)
        assert [*chain(*found)] == expected(*pools)


def test_test_data_and_should_shuffle_false_come_in_the_order_of_the_files(job):
    for options, is_train in (("", False), (", should_shuffle=False", True)):
        before = random.getstate()
        source = job(COUNTING.format(options), {"x": 1000}, entries="b\na\n", is_train=is_train)
        assert read_ids(source) == [[*range(100, 106), *range(6)]]
        assert random.getstate() == before or is_train


def test_files_without_samples_do_not_end_the_pass(job):
    code = COUNTING.replace("in range(6)", "in (range(2) if file_name == 'c' else [])").format("")
    assert sorted(chain(*read_ids(job(code, {"x": 1000}, entries="a\nb\nc\na\n")))) == [200, 201]


def test_a_run_whose_script_seeds_nothing_has_the_order_of_its_seed(job, monkeypatch):
    """Python's generator starts differently in each process, so two runs had two orders."""
    state = random.getstate()
    monkeypatch.setattr(random_states, "_AT_START", state)
    try:
        found = []
        for _ in range(2):
            random.setstate(state)
            found.append(read_ids(job(COUNTING.format(""), {"x": 1000})))
            state = random_states._AT_START = random.Random(len(found)).getstate()
        assert found[0] == found[1]
        random.seed(5)
        seeded = read_ids(job(COUNTING.format(""), {"x": 1000}))
        random.seed(5)
        assert seeded == [expected(range(500, 506))]
    finally:
        random.setstate(state)


def test_another_process_goes_on_within_a_pass_with_the_same_batches(job):
    def opened():
        return job(COUNTING.format(", pool_size=PoolSize(7)"), {"x": 1000}, entries="a\nb\nc\n")

    first = opened()
    first.track()
    first.start_pass()
    wanted = [first.next_batch(4)[0]["x"].ids.tolist() for _ in range(4)]
    position = first.position(2)
    random.seed(99)
    second = opened()
    second.resume(position, 4)
    assert [second.next_batch(4)[0]["x"].ids.tolist() for _ in range(2)] == wanted[2:]


def test_a_task_of_a_master_is_shuffled_by_itself(job):
    opened = job(COUNTING.format(", pool_size=2"), {"x": 1000}, entries="a\nb\nc\n", opens=open_provider)
    source = TaskSource(opened, DataStreams(Stream(1), mixing=Stream(1)), lambda: None)
    for files, wanted in ((["c"], range(200, 206)), (["a", "b"], [*range(6), *range(100, 106)])):
        source.start_task(files, "task")
        random.seed(3)
        found = []
        while (batch := source.next_batch(5)) is not None:
            found += batch[0]["x"].ids.tolist()
        assert sorted(found) == list(wanted)


def test_trainers_that_come_and_go_read_the_same_order(job):
    found = []
    for number in range(2):
        opened = job(COUNTING.format(", pool_size=2"), {"x": 1000}, entries="a\nb\nc\n", opens=open_provider)
        source = DividedSource(opened, 7, lambda: None, "train.list")
        random.seed(number)
        source.go_to(1, 1, 6)
        found.append([source.next_share(6, one, 1).slots["x"].ids.tolist() for one in (0, 0)])
    assert found[0] == found[1]


def test_sources_of_a_multi_data_and_constant_slots(job):
    job(COUNTING.format(", should_shuffle=False"), {"x": 1000})
    one = {"type": "py", "files": "train.list", "load_data_module": "my_provider", "load_data_object": "process"}
    config = DataConfig(
        type="multi",
        sub_data_configs=[
            DataConfig(**one, data_ratio=2, is_main_data=True, constant_slots=[0.5]),
            DataConfig(**one, data_ratio=1, is_main_data=False),
        ],
    )
    streams = DataStreams(Stream(1), mixing=Stream(1))
    sizes = [{"x": 1000, "weight": 1}, {"y": 1000}]
    source = open_source(config, sizes, is_train=True, streams=streams, check=lambda: None, is_own=True)
    batches = [batch for batch, _ in read(source, 6)]
    assert [len(one["x"].ids) for one in batches] == [4, 2] and [len(one["y"].ids) for one in batches] == [2, 2]
    assert batches[0]["weight"].value.tolist() == [[0.5]] * 4


# ----- Classes, args and what else a provider may have -----


def test_a_class_of_the_module_is_a_provider_too(job):
    source = job(
        """
        class process(GeneralPyDataProvider):
            def __init__(self, *file_list, **kwargs):
                self.should_shuffle, self.resets = True, 0
                GeneralPyDataProvider.__init__(self, *file_list, **kwargs)
                assert self.file_list == ["a", "b"] and kwargs == {"load_data_args": "some text"}

            def getSlots(self):
                return [IndexSlot(100)]

            def generateData(self, fn):
                return [[10 * self.resets + number] for number in (3, 1, 2)]

            def calculateDataBatchSize(self, data):
                return 2

            def reset(self):
                self.resets += 1

            def shuffle(self):
                self.data_pool.sort()
        """,
        {"x": 100},
        entries="a\nb\n",
        args="some text",
    )
    assert read_ids(source, 4) == [[11, 11], [12, 12], [13, 13]]
    assert read(source, 100)[0][1] == 12


def test_a_profile_of_each_pass_is_written(job, tmp_path):
    source = job(COUNTING.format(", profile_filename='prof'"), {"x": 1000})
    for number in range(2):
        read(source)
        assert "cumulative" in (tmp_path / f"prof_{number}").read_text()


class Loud:
    def __reduce__(self):
        return print, ("ran",)


ECHO = """
    def hook(obj, *file_list, **kwargs):
        obj.slots = [IndexSlot(100)]
        obj.args = kwargs.get("load_data_args")

    @provider(init_hook=hook)
    def process(obj, file_name):
        yield [len(obj.args)]
"""


def test_args_of_a_model_file_are_plain_values(job, capsys):
    """A pickle that names code reached the hook, whose pickle.loads would have run it."""
    evil = pickle.dumps(Loud(), 0).decode("latin-1")
    with pytest.raises(ConfigError, match=r"args of the data provider my_provider::process in the model file cannot"):
        job(ECHO, {"x": 100}, args=evil, is_own=False)
    assert "ran" not in capsys.readouterr().out
    plain = {"words": ["a"]}
    assert read_ids(job(ECHO, {"x": 100}, args=plain, is_own=False)) == [[len(pickle.dumps(plain, 0))]]


# ----- Errors -----

BROKEN = """
    @provider(slots=[DenseSlot(2), IndexSlot(3)], use_seq={seq})
    def process(obj, file_name):
        yield {good}
        {bad}
"""


@each(
    "bad, said",
    [
        ("yield [[1, 2]]", r"sample 2 of f .*is no list of 2 slots \(x, label\)"),
        ("yield [[1, 2], 1, 1]", r"sample 2 of f .*is no list of 2 slots"),
        ("yield [[1, 2, 3], 1]", r"sample 2 of f .*slot x \(dense_vector\(2\)\): it has 3 numbers instead of 2"),
        ("yield [[1, 2], 7]", r"sample 2 of f .*slot label .*id 7 is not in \[0, 3\)"),
        ("yield [[1, 2], 'a']", r"sample 2 of f .*slot label .*'a' is no id"),
        ("yield [['a', 'b'], 1]", r"sample 2 of f .*slot x .*is no list of numbers"),
        ("yield {'x': [1, 2], 'label': 1}", r"reading 'f': .*sample 2 \(counted from 1\) is a dict; .*list of 2 slots"),
        ("raise KeyError('word')", r"reading 'f': my_provider.py:6 \(raise KeyError\('word'\)\): KeyError: 'word'"),
    ],
)
def test_what_is_wrong_with_a_sample_is_said(job, bad, said):
    source = job(BROKEN.format(seq=False, good="[1, 2], 1", bad=bad), {"x": 2, "label": 3})
    with pytest.raises(DataError, match=said):
        read(source, 10)


def test_a_value_that_is_no_sequence_is_said_with_use_seq(job):
    source = job(BROKEN.format(seq=True, good="[[1, 2]], [1]", bad="yield [1, 2], [1]"), {"x": 2, "label": 3})
    with pytest.raises(DataError, match=r"sample 2 of f .*slot x .*a list, each item of it a list of 2 numbers"):
        read(source)


def test_a_string_slot_takes_texts_only(job):
    code = """
        @provider(slots=[StringSlot(1), IndexSlot(3)])
        def process(obj, file_name):
            yield "a", 1
            yield 5, 1
    """
    with pytest.raises(DataError, match=r"sample 2 \(counted from 1\): slot 0 is 5; a StringSlot takes a text"):
        read(job(code, {"text": 1, "label": 3}))


def made(options="", name="process"):
    return f"@provider({options})\ndef {name}(obj, file_name):\n    yield 1\n"


@each(
    "code, kind, said",
    [
        (
            made(),
            DataError,
            r"init of .*my_provider::process: ValueError: there are no slots: give slots",
        ),
        (made("slots=[IndexSlot(3)]"), DataError, r"there are 1 slots \(IndexSlot\(3\)\); the network has 2 inputs"),
        (made("slots=[SlotType(3), IndexSlot(3)]"), DataError, r"slot 0 .* is SlotType\(3\); it must be DenseSlot"),
        (made("slots=[IndexSlot(3), 5]"), DataError, r"slot 1 \(counted from 0\) is 5; it must be DenseSlot\(n\)"),
        (
            made("slots=[IndexSlot(3), DenseSlot('a')]"),
            DataError,
            r"slot 1 .* is DenseSlot\(a\); its size must be",
        ),
        (made("slots=[DenseSlot(3), IndexSlot(3)]"), ConfigError, r"data_layer x has size 2, .*dense_vector\(3\)"),
        (made("pool_size=0"), DataError, r"pool_size is 0; it must be a number of files"),
        (made("pool_size=PoolSize('a')"), DataError, r"pool_size is PoolSize\('a'\)"),
        (made("pool_size=PoolSize(float('nan'))"), DataError, r"pool_size is PoolSize\(nan\)"),
        (made("pool_size=1.5"), DataError, r"pool_size is 1.5; "),
        (made("poolsize=3"), DataError, r"import of .*my_provider.py:2 .*unexpected keyword argument 'poolsize'"),
        (made(name="other"), ConfigError, r"has no process; its providers are: other"),
        ("class process:\n    def getNextBatch(self, n): pass\n", ConfigError, r"packs bytes itself \(getNextBatch\)"),
        (
            "class process(GeneralPyDataProvider):\n    def getNextBatch(self, n): pass\n",
            ConfigError,
            r"packs bytes itself \(getNextBatch\)",
        ),
        ("process = 5\n", ConfigError, r"has no @provider before its process"),
        (made("init_hook=init_hook_wrapper(lambda obj, words, **m: 0)"), DataError, "missing 1 required .*'words'"),
    ],
)
def test_what_is_wrong_with_the_declaration_is_said(job, code, kind, said):
    with pytest.raises(kind, match=said):
        job(code, {"x": 2, "label": 3})


def test_the_provider_of_another_type_is_told_what_names_it(job):
    newer = "from paddle.trainer.PyDataProvider2 import *\n@provider()\ndef process(settings, name):\n    yield 1\n"
    with pytest.raises(ConfigError, match=r"provider of type py2, .* as data of type py; use define_py_data_sources2"):
        job(newer, {"x": 1})
    with pytest.raises(
        ConfigError, match=r"provider of type py, .* as data of type py2; use define_py_data_source\(s\)"
    ):
        job(COUNTING.format(""), {"x": 1000}, type="py2")


def test_arrays_of_numpy_have_levels_of_sequences(job):
    source = job(
        """
        import numpy as np

        @provider(slots=[DenseSlot(2), IndexSlot(9)], use_seq=True)
        def process(obj, file_name):
            yield [np.zeros((2, 2)), np.ones((1, 2))], [np.array([1, 2]), np.array([3])]
        """,
        {"x": 2, "y": 9},
    )
    ((batch, _),) = read(source)
    assert batch["x"].sub_starts.tolist() == batch["y"].sub_starts.tolist() == [0, 2, 3]
    assert np.array_equal(batch["x"].value, [[0, 0], [0, 0], [1, 1]])

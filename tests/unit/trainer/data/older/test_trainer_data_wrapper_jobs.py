"""Whole jobs whose data is of type `py`, as configs of the time wrote them."""

from textwrap import dedent

import pytest

from trainer.__main__ import run
from trainer.config.scripts.python2 import use_directories


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory of a job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "paddle_base.kernels.flush_denormals", lambda: None
    )  # of the process: later tests look at small numbers
    yield tmp_path
    use_directories(forget=True)


WORDS = """
    from paddle.trainer.PyDataProviderWrapper import *

    @init_hook_wrapper
    def hook(obj, dictionary, file_list, **kwargs):
        obj.dictionary = dictionary
        obj.slots = [SparseNonValueSlot(len(dictionary)), StringSlot(1), IndexSlot(2)]

    @provider(init_hook=hook, pool_size=2)
    def process(obj, file_name):
        for text in ("a c b", "a c d") * 3:
            yield [[obj.dictionary[word] for word in text.split() if obj.dictionary.has_key(word)], text, "b" in text]
"""
NETWORK = """
    from paddle.trainer_config_helpers import *
    words = {{"a": 0, "b": 1, "d": 2}}
    {0}
    settings(batch_size=4, learning_rate=0.1)
    word, text, label = data_layer("word", 3), data_layer("text", 1), data_layer("label", 2)
    inputs(word, text, label)
    outputs(classification_cost(fc_layer(word, 2, act=SoftmaxActivation()), label))
"""
SOURCES = 'data_sources.define_py_data_sources("list", "list", "dp", "process", args={"dictionary": words})'
RAW = """import pickle
    fields = {"files": "list", "load_data_module": "dp", "load_data_object": "process", "constant_slots": []}
    fields["load_data_args"] = pickle.dumps({"dictionary": words}, 0).decode("latin-1")
    TrainData(PyData(**fields))
    TestData(PyData(type="py", **fields))"""


VIDEO = """
    from paddle.trainer.PyDataProviderWrapper import *
    import numpy as np

    def init(obj, *file_list, **kwargs):
        obj.slots = [DenseSlot(4), DenseSlot(2), IndexSlot(3)]

    @provider(use_seq=True, init_hook=init, pool_size=PoolSize(6))
    def process(obj, file_name):
        for number in xrange(9):
            frames, label = 2 + number % 4, number % 3
            yield [np.full((frames, 4), label, "float32"), [[0.5, label]] * frames, [label]]
"""
OF_VIDEO = """
    from paddle.trainer_config_helpers import *
    data_sources.define_py_data_sources(["f", "g"], None, "dp", "process")
    settings(batch_size=4, learning_rate=0.05, learning_method=AdamOptimizer())
    rgb, audio, label = data_layer("rgb", 4), data_layer("audio", 2), data_layer("label", 3)
    heard = pooling_layer(fc_layer(audio, 5), pooling_type=AvgPooling())
    shown = fc_layer([last_seq(simple_lstm(rgb, 4)), heard], 3, act=SoftmaxActivation())
    outputs(classification_cost(shown, label))
"""
TRANSLATION = """
    from paddle.trainer.PyDataProviderWrapper import *

    @init_hook_wrapper
    def hook(obj, size, file_list, **kwargs):
        obj.slots = [IndexSlot(size), IndexSlot(size), IndexSlot(size)]

    @provider(use_seq=True, init_hook=hook, pool_size=2, calc_batch_size=lambda data: len(data[1]))
    def process(obj, file_name):
        for number in xrange(9):
            words = map(int, xrange(2, 4 + number % 4))
            yield words, [0] + words, words + [1]
"""
OF_TRANSLATION = """
    from paddle.trainer_config_helpers import *
    data_sources.define_py_data_sources(["f", "g"], None, "dp", "process", args={"size": 9})
    settings(batch_size=20, learning_rate=0.05, learning_method=AdamOptimizer())
    source, target, following = data_layer("source", 9), data_layer("target", 9), data_layer("following", 9)
    encoded = last_seq(simple_gru(embedding_layer(source, 4), 4))

    def step(word):
        before = memory(name="decoder", size=4, boot_layer=encoded)
        state = gru_step_layer(name="decoder", input=fc_layer(word, 12), output_mem=before, size=4)
        return fc_layer(state, 9, act=SoftmaxActivation())

    inputs(source, target, following)
    outputs(classification_cost(recurrent_group(step, [embedding_layer(target, 4)]), following))
"""


@pytest.mark.parametrize(
    ("provider", "config"), [(VIDEO, OF_VIDEO), (TRANSLATION, OF_TRANSLATION)], ids=["video", "translation"]
)
def test_a_job_of_sequences_learns(here, capfd, provider, config):
    (here / "dp.py").write_text(dedent(provider))
    (here / "conf.py").write_text(dedent(config))
    run(["--config=conf.py", "--num_passes=10", "--save_dir=out", "--dot_period=0"])
    costs = [
        float(line.split("AvgCost=")[1].split()[0]) for line in capfd.readouterr().err.split("\n") if "Pass=" in line
    ]
    assert len(costs) == 10 and costs[-1] < 0.6 * costs[0]


@pytest.mark.parametrize("sources", [SOURCES, RAW], ids=["define_py_data_sources", "PyData"])
def test_a_config_of_the_time_trains_tests_and_checks_its_gradients(here, capfd, sources):
    (here / "dp.py").write_text(dedent(WORDS))
    (here / "conf.py").write_text(dedent(NETWORK.format(sources)))
    (here / "list").write_text("f\ng\nh\n")
    run(["--config=conf.py", "--num_passes=3", "--save_dir=out", "--log_period=1"])
    log = capfd.readouterr().err
    assert log.count("Pass=2 Batch=5 samples=18 ") == log.count("Test samples=18 cost=") - 2 == 1
    run(["--config=conf.py", "--job=test", "--init_model_path=out/pass-00002"])
    assert "samples=18 AvgCost=" in capfd.readouterr().err
    run(["--config=conf.py", "--job=checkgrad"])
    assert "___fc_layer_0__.wbias" in capfd.readouterr().err

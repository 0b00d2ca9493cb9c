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

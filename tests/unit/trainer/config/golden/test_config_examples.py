"""The examples: the size of every network as v0.10 had it, and the order of its inputs and outputs."""

from pathlib import Path

import pytest

from paddle_cluster.prepare.program import prepare
from paddle_cluster.prepare.settings import read_settings
from trainer.config import parse_config

EXAMPLES = Path(__file__).parents[5] / "examples"


@pytest.fixture
def shard(tmp_path, monkeypatch):
    """A function that prepares one shard of made-up data and goes to it."""

    def go_to_shard(shape):
        flags = ["--data_source=synthetic", f"--synthetic_shape={shape}", "--synthetic_rows=40", "--split_count=1"]
        prepare(read_settings([f"--out_dir={tmp_path}", f"--examples_dir={EXAMPLES}", *flags], {}))
        monkeypatch.chdir(tmp_path / "0")

    return go_to_shard


@pytest.mark.parametrize(
    ("config", "layers", "parameters"),
    [
        ("lr", 4, 2),
        ("emb", 6, 3),
        ("cnn", 8, 5),
        ("lstm", 8, 6),
        ("bidi-lstm", 13, 9),
        ("db-lstm", 22, 41),
        ("resnet-lstm", 17, 15),
    ],
)
def test_quick_start_is_as_large_as_the_tutorials(shard, config, layers, parameters):
    shard("text")
    whole = parse_config(f"../quick_start/trainer_config.{config}.py", "")
    model = whole.model_config
    assert (len(model.layers), len(model.parameters)) == (layers, parameters)
    assert (list(model.input_layer_names), list(model.output_layer_names)) == (["word", "label"], ["__cost_0__"])
    assert (whole.opt_config.learning_method, whole.opt_config.batch_size) == ("adam", 128)
    predicting = parse_config(f"../quick_start/trainer_config.{config}.py", "is_predict=1")
    assert list(predicting.model_config.input_layer_names) == ["word"]
    assert predicting.model_config.output_layer_names[0] == "__maxid_layer_0__"
    assert not predicting.HasField("data_config")
    assert (predicting.test_data_config.files, predicting.opt_config.batch_size) == ("data/pred.list", 1)
    assert len(predicting.model_config.parameters) == parameters


@pytest.mark.parametrize(
    ("config", "reversed_ones"),
    [("bidi-lstm", [False, True]), ("db-lstm", [False, True] * 4), ("resnet-lstm", [False] * 4)],
)
def test_deep_lstms_have_their_directions_and_the_last_bias_does_not_decay(shard, config, reversed_ones):
    shard("text")
    model = parse_config(f"../quick_start/trainer_config.{config}.py", "").model_config
    assert [layer.reversed for layer in model.layers if layer.type == "lstmemory"] == reversed_ones
    last = model.parameters[-1]
    assert (last.HasField("decay_rate"), last.decay_rate, last.initial_std) == (True, 0.0, 0.0)
    assert model.parameters[0].decay_rate == 8e-4


def test_recommendation_is_as_large_as_the_tutorials(shard):
    shard("ratings")
    whole = parse_config("../recommendation/trainer_config.py", "")
    model = whole.model_config
    assert (len(model.layers), len(model.parameters)) == (28, 31)
    inputs = ["movie_id", "title", "genres", "user_id", "gender", "age", "occupation", "rating"]
    assert list(model.input_layer_names) == inputs
    assert (whole.opt_config.learning_method, whole.opt_config.batch_size) == ("rmsprop", 1600)
    predicting = parse_config("../recommendation/trainer_config.py", "is_predict=1")
    assert list(predicting.model_config.input_layer_names) == inputs[:-1]
    assert predicting.test_data_config.load_data_object == "process_predict"

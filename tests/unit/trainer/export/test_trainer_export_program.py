"""The command `paddle export --format=onnx`: the three kinds of models, the file, and what it refuses."""

import io
import pickle

import numpy as np
import onnx
import pytest
from each import each
from exporting import run_onnx

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from trainer import merge_model
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.export.program import main
from trainer.storage.model_files import encode_parameter
from trainer.v2.parameters import Parameters

CONFIG = """
from paddle.trainer_config_helpers import *
settings(batch_size=1)
define_py_data_sources2('train.list', None, module='words', obj='process')
word = data_layer('word', 5)
score = data_layer('score', 2)
label = data_layer('label', 3)
hidden = fc_layer([embedding_layer(word, 3), score], SIZE, act=TanhActivation(), name='hidden')
out = fc_layer(hidden, 3, act=SoftmaxActivation(), name='out')
outputs(classification_cost(out, label))
"""
PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

@provider(input_types={'word': integer_value(5), 'score': dense_vector(2), 'label': integer_value(3)})
def process(settings, name):
    yield {'word': 1, 'score': [0.5, 0.5], 'label': 2}
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A directory with a config, its provider, a pass directory and a merged model; the present directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.py").write_text(CONFIG.replace("SIZE", "4"))
    (tmp_path / "wide.py").write_text(CONFIG.replace("SIZE", "8"))
    (tmp_path / "words.py").write_text(PROVIDER)
    (tmp_path / "train.list").write_text("train.txt\n")
    (tmp_path / "train.txt").write_text("")
    model = parse_config("config.py", "").model_config
    table = ParameterTable(model.parameters)
    table.values[:] = np.random.default_rng(1).normal(size=table.values.size)
    (tmp_path / "pass-00009").mkdir()
    for parameter in table:
        (tmp_path / "pass-00009" / parameter.name).write_bytes(b"".join(encode_parameter(parameter)))
    merge_model.merge(["--model_dir=pass-00009", "--model_file=merged.paddle", "--config=config.py"])
    return tmp_path, model, table


def read(path):
    proto = onnx.load(path)
    return proto, {one.key: one.value for one in proto.metadata_props}


FEEDS = {"word": np.array([1, 4, 0]), "score": np.arange(6, dtype=np.float32).reshape(3, 2)}


def test_a_config_and_its_pass_become_a_file_with_the_facts_that_feed_it(job, capfd):
    """The commands of the issue: the inputs are the data layers, and the cost stands for its prediction."""
    (job[0] / "words.txt").write_text("the\ncat\n")
    assert (
        main(
            [
                "--config=config.py",
                "--init_model_path=pass-00009",
                "--format=onnx",
                "--dictionary=word=words.txt",
                "m.onnx",
            ]
        )
        == 0
    )
    assert capfd.readouterr().out == "m.onnx: opset 17, inputs word, score, outputs out\n"
    proto, facts = read("m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [(one.domain, one.version) for one in proto.opset_import] == [("", 17)]
    assert facts["script"] == (job[0] / "config.py").read_text()
    assert facts["dictionary.word"] == "the\ncat\n"
    assert facts["input_type.word"] == "integer_value(5)"
    assert "hidden: fc" in facts["layers"].splitlines()
    assert 'name: "hidden"' in facts["config"]
    found = run_onnx(proto, FEEDS)["out"]
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    one = run_onnx(proto, {name: rows[:1] for name, rows in FEEDS.items()})["out"]
    np.testing.assert_allclose(one, found[:1], rtol=1e-6)


def test_a_merged_model_and_a_tar_file_give_the_same_file_as_the_pass(job):
    _, model, table = job
    parameters = Parameters()
    for config in model.parameters:
        parameters.append_config(config)
        parameters.set(config.name, table[config.name].value.reshape(parameters.get_shape(config.name)))
    buffer = io.BytesIO()
    parameters.to_tar(buffer)
    (job[0] / "inference.tar").write_bytes(buffer.getvalue())
    write_topology(job[0] / "T", model)
    assert main(["--config=config.py", "--init_model_path=pass-00009", "pass.onnx"]) == 0
    assert main(["--model=merged.paddle", "merged.onnx"]) == 0
    assert main(["--v2", "inference.tar", "--topology=T", "--format=onnx", "tar.onnx"]) == 0
    expected = run_onnx(read("pass.onnx")[0], FEEDS)["out"]
    for name in ("merged.onnx", "tar.onnx"):
        np.testing.assert_array_equal(run_onnx(read(name)[0], FEEDS)["out"], expected, name)


def write_topology(path, model):
    """The network for inference, as Topology.serialize_for_inference writes it."""

    pruned = ModelConfig()
    pruned.CopyFrom(model)
    pruned.output_layer_names[:] = ["out"]
    types = [("word", (5, 0, 3)), ("score", (2, 0, 0))]
    path.write_bytes(pickle.dumps({"protobin": pruned.SerializeToString(), "data_type": types}, 4))


def test_layers_can_be_chosen_as_outputs(job):
    assert main(["--model=merged.paddle", "--outputs=hidden,out", "--opset=18", "m.onnx"]) == 0
    proto, _ = read("m.onnx")
    assert [one.name for one in proto.graph.output] == ["hidden", "out"]
    assert proto.opset_import[0].version == 18


GIVEN = ["--config=config.py", "--init_model_path=pass-00009"]
WRONG = {
    "no model": (["m.onnx"], 64, "no model is given: give --config and --init_model_path"),
    "two models": (["--model=merged.paddle", "--v2=t", "m.onnx"], 64, "name several models"),
    "no parameters": (["--config=config.py", "m.onnx"], 64, "--config needs the parameters, too"),
    "an empty model": (["--config=config.py", "--init_model_path=empty", "m.onnx"], 66, "missing, not allowed"),
    "another model": (["--config=wide.py", "--init_model_path=pass-00009", "m.onnx"], 65, "does not match the size"),
    "a file that stands already": ([*GIVEN, "there.onnx"], 64, "there.onnx exists already; name another"),
    "an older opset": ([*GIVEN, "--opset=11", "m.onnx"], 64, "--opset=11 is not supported; give 17 to 21"),
    "a topology without a tar": (["--topology=T", "--model=merged.paddle", "m.onnx"], 64, "belong together"),
    "a tar without its topology": (["--v2=merged.paddle", "m.onnx"], 64, "belong together"),
    "no merged model": (["--model=none", "m.onnx"], 66, "--model=none is no file"),
    "random layers": (
        ["--config=random.py", "--init_model_path=pass-00009", "m.onnx"],
        78,
        "layer __sampling_id_layer_0__ (sampling_id): it draws random numbers; layer s (sampling_id): it draws",
    ),
    "an unknown output": ([*GIVEN, "--outputs=nothing", "m.onnx"], 78, "the network has no layer nothing"),
    "a wrong dictionary": ([*GIVEN, "--dictionary=nobody=words.py", "m.onnx"], 64, "write NAME=FILE"),
    "no directory": ([*GIVEN, "none/m.onnx"], 74, "cannot write none/m.onnx"),
}


@each("arguments, status, text", WRONG.values(), ids=WRONG)
def test_the_program_says_what_is_wrong_in_one_line_and_writes_nothing(job, capfd, arguments, status, text):
    (job[0] / "there.onnx").write_text("old")
    drawing = "outputs(sampling_id_layer(out), sampling_id_layer(out, name='s'))\n"
    (job[0] / "random.py").write_text(CONFIG.replace("SIZE", "4").partition("outputs(")[0] + drawing)
    (job[0] / "empty").mkdir(exist_ok=True)
    assert main(arguments) == status
    said = capfd.readouterr().err
    assert text in said and said.rstrip().rpartition("paddle export: ")[2].count("\n") == 0, said
    assert not (job[0] / "m.onnx").exists()
    assert (job[0] / "there.onnx").read_text() == "old"


def test_a_file_that_stands_already_is_replaced_if_it_may_be(job):
    (job[0] / "there.onnx").write_text("old")
    assert main([*GIVEN, "--overwrite", "there.onnx"]) == 0
    assert len(read("there.onnx")[0].graph.node) > 1


def test_without_the_extra_the_program_names_it(job, monkeypatch, capfd):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert main(["--model=merged.paddle", "m.onnx"]) == 78
    assert "pip install 'paddle-on-kubernetes[export]'" in capfd.readouterr().err


def test_help_needs_no_numpy(capfd):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0 and "--init_model_path" in capfd.readouterr().out

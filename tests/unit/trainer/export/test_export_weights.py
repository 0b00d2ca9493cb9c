"""Parameters as files of safetensors, and back: the same bits, names and shapes of layers, and what is refused."""

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.proto.ParameterConfig_pb2 import ParameterConfig
from paddle_base.proto.TrainerConfig_pb2 import OptimizationConfig, TrainerConfig
from tests.each import each
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.rng import Stream
from trainer.config import parse_config
from trainer.export.program import main
from trainer.export.tensors import weights
from trainer.merge_model import frame_config
from trainer.merge_model import main as merge_model
from trainer.storage.model_files import encode_parameter, save_pass
from trainer.storage.model_sources import load_model
from trainer.v2.parameters import Parameters

# two fc layers share a weight, a bias is static, and a table is updated sparsely
CONFIG = """
from paddle.trainer_config_helpers import *
settings(batch_size=4)
words = data_layer(name="word", size=10)
image = data_layer(name="image", size=2 * 6 * 6, height=6, width=6)
vectors = embedding_layer(input=words, size=4, param_attr=ParamAttr(name="table", sparse_update=True))
memory = lstmemory(input=fc_layer(input=vectors, size=12, act=LinearActivation(), bias_attr=False), name="lstm")
gates = grumemory(input=fc_layer(input=vectors, size=9, act=LinearActivation()), name="gru")
maps = img_conv_layer(input=image, filter_size=3, num_filters=4, num_channels=2, groups=2, name="conv")
normal = batch_norm_layer(input=maps, name="norm")
shared = ParamAttr(name="shared")
one = fc_layer(input=last_seq(input=memory), size=3, param_attr=shared, bias_attr=ParamAttr(is_static=True), name="one")
two = fc_layer(input=last_seq(input=gates), size=3, param_attr=shared, name="two")
outputs(one, two, fc_layer(input=normal, size=2, name="three"))
"""
SHAPES = {
    "table": (10, 4),
    "___fc_layer_0__.w0": (4, 12),
    "_lstm.w0": (3, 12),
    "_lstm.wbias": (21,),
    "_gru.w0": (27,),
    "_conv.w0": (4, 1, 3, 3),
    "_conv.wbias": (4,),
    "_norm.w0": (4,),
    "_norm.w1": (4,),
    "_norm.w2": (4,),
    "shared": (3, 3),
    "_one.wbias": (3,),
    "_three.w0": (64, 2),
}


OPTIMIZER = OptimizationConfig(batch_size=1, algorithm="sgd", learning_rate=0.1)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A directory with config.py, and pass-00000 with random values, among them NaN of several kinds and -0."""
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(CONFIG)
    config = parse_config("config.py", "").model_config
    table = ParameterTable(config.parameters)
    table.randomize(Stream(1))
    table["shared"].value.view(np.uint32)[:4] = [0x7FC00001, 0xFF800000, 0x80000000, 0x7F800001]
    save_pass(Path("pass-00000"), table, {"config.py": CONFIG.encode()})
    return tmp_path


def export(*arguments):
    """The exit status of `paddle export`."""
    return main([*arguments])


def read(path):
    """Each tensor of a file by name, and the metadata, read by the library."""
    with safe_open(path, "numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118  (no mapping)


def contents(directory):
    """The bytes of each file in a directory, by name."""
    return {one.name: one.read_bytes() for one in Path(directory).iterdir()}


def write_raw(path, header, data):
    """Write a file of safetensors with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_tensors_have_the_names_and_shapes_of_the_layers(model):
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 0
    tensors, metadata = read("w.safetensors")
    assert {name: tensors[name].shape for name in SHAPES} == SHAPES
    described = json.loads(metadata["paddle.tensors"])
    assert set(described) == set(tensors)
    assert [use["layer"] for use in described["shared"]["uses"]] == ["one", "two"]
    assert [part["shape"] for part in described["_gru.w0"]["parts"]] == [[3, 6], [3, 3]]
    assert "batch_size" in metadata["paddle.script"]
    assert 'name: "lstm"' in metadata["paddle.config"]


def test_a_pass_comes_back_with_the_same_bytes(model):
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 0
    assert export("--import=w.safetensors", "--config=config.py", "back/pass-00000") == 0
    before, after = (
        {one.name: one.read_bytes() for one in Path(d).iterdir()} for d in ("pass-00000", "back/pass-00000")
    )
    assert after == before
    assert merge_model(["--model_dir=pass-00000", "--model_file=merged.paddle"]) == 0
    assert export("--model=merged.paddle", "--format=safetensors", "m.safetensors") == 0
    assert export("--import=m.safetensors", "--model=merged.paddle", "again") == 0
    assert contents("again") == {
        name: content for name, content in before.items() if name not in ("config.py", "path.txt")
    }


def test_a_tar_file_comes_back_with_the_same_values(model):
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 0
    assert export("--import=w.safetensors", "--config=config.py", "back.tar") == 0
    with Path("back.tar").open("rb") as file:
        parameters = Parameters.from_tar(file)
    tensors, _ = read("w.safetensors")
    assert set(parameters.names()) == set(tensors)
    for name, values in tensors.items():
        assert parameters.get(name).tobytes() == values.tobytes()


def test_sparse_storage_keeps_its_positions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = ModelConfig(
        type="nn",
        parameters=[ParameterConfig(name="w", size=5, dims=[4, 3], is_sparse=True, format="csr", is_static=True)],
    )
    Path("merged.paddle").write_bytes(frame_config(TrainerConfig(model_config=config, opt_config=OPTIMIZER)))
    table = ParameterTable(config.parameters)
    positions = np.array([0, 2, 2, 4, 5, 0, 2, 1, 0, 2], "<i4")
    table["w"].value[:] = [1, 2, 0, 4, 5]
    table["w"].pattern.read(positions.tobytes(), "here")
    with Path("merged.paddle").open("ab") as file:
        file.writelines(encode_parameter(table["w"]))
    assert export("--model=merged.paddle", "--format=safetensors", "w.safetensors") == 0
    tensors, _ = read("w.safetensors")
    assert tensors["w"].tolist() == [1, 2, 0, 4, 5]
    assert tensors["w/positions"].tolist() == positions.tolist()
    assert export("--import=w.safetensors", "--model=merged.paddle", "back") == 0
    assert Path("back/w").read_bytes() == b"".join(encode_parameter(table["w"]))
    assert export("--import=w.safetensors", "--model=merged.paddle", "back.tar") == 78


@each("kind, exact", [("float16", False), ("float64", True)])
def test_other_types_of_numbers_become_float32_with_a_line_that_says_so(kind, exact, model, capfd):
    export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors", "--overwrite")
    tensors, _ = read("w.safetensors")
    with np.errstate(all="ignore"):
        changed = {name: values.astype(kind) for name, values in tensors.items()}
    save_file(changed, "other.safetensors")
    assert export("--import=other.safetensors", "--config=config.py", "back", "--overwrite") == 0
    assert "became float32" in capfd.readouterr().err
    config = parse_config("config.py", "").model_config
    table = ParameterTable(config.parameters)
    load_model("back", table, "never", Stream(0))
    wanted = tensors["table"].astype(kind).astype(np.float32)
    np.testing.assert_array_equal(table["table"].value, wanted.reshape(-1))
    if exact:
        np.testing.assert_array_equal(wanted, tensors["table"])


def test_bfloat16_becomes_float32(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "settings(batch_size=4)\n"
        "outputs(fc_layer(input=data_layer(name='x', size=2), size=1, bias_attr=False, name='y'))\n"
    )
    header = {"_y.w0": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]}}
    write_raw("b.safetensors", header, b"\x80\x3f\xc0\xff")
    assert export("--import=b.safetensors", "--config=config.py", "back") == 0
    values = np.frombuffer(Path("back/_y.w0").read_bytes()[16:], "<f4")
    assert values[0] == 1
    assert np.isnan(values[1])


F32 = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}
ZEROS = bytes(8)
HOSTILE = {
    "empty": (None, b""),
    "header longer than the file": (None, struct.pack("<Q", 1 << 62) + b"{}"),
    "header longer than allowed": (None, struct.pack("<Q", 200 << 20) + b"{}"),
    "no JSON": (b"{", ZEROS),
    "nested JSON": (b'{"a":' + b"[" * 100_000, ZEROS),
    "overlap": ({"_y.w0": F32, "a": {**F32, "data_offsets": [4, 12]}}, bytes(12)),
    "hole": ({"_y.w0": {**F32, "data_offsets": [4, 12]}}, bytes(12)),
    "cut off": ({"_y.w0": F32}, bytes(4)),
    "longer": ({"_y.w0": F32}, bytes(16)),
    "too many values": ({"_y.w0": {**F32, "shape": [1 << 62, 8]}}, ZEROS),
    "negative shape": ({"_y.w0": {**F32, "shape": [-2, -1]}}, ZEROS),
    "unknown type": ({"_y.w0": {**F32, "dtype": "Q9"}}, ZEROS),
    "integers": ({"_y.w0": {**F32, "dtype": "I32"}}, ZEROS),
    "another type": ({"_y.w0": {**F32, "dtype": "I64", "shape": [1, 1]}}, ZEROS),
    "metadata of numbers": ({"__metadata__": {"a": 1}, "_y.w0": F32}, ZEROS),
    "a newer version": ({"__metadata__": {"paddle.version": "2"}, "_y.w0": F32}, ZEROS),
    "another shape": ({"_y.w0": {**F32, "shape": [1, 2]}}, ZEROS),
    "further tensor": ({"_y.w0": F32, "a": {**F32, "data_offsets": [8, 16]}}, bytes(16)),
}  # fmt: skip


@each("name", list(HOSTILE))
def test_files_that_are_damaged_or_of_another_network_are_refused_in_one_line(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(
        "from paddle.trainer_config_helpers import *\n"
        "settings(batch_size=4)\n"
        "outputs(fc_layer(input=data_layer(name='x', size=2), size=1, bias_attr=False, name='y'))\n"
    )
    header, data = HOSTILE[name]
    if header is None:
        Path("h.safetensors").write_bytes(data)
    else:
        write_raw("h.safetensors", header, data)
    assert export("--import=h.safetensors", "--config=config.py", "back") == 65
    (error,) = [line for line in capfd.readouterr().err.splitlines() if "networks.py" not in line]
    assert "h.safetensors" in error
    assert len(error) < 500
    assert not Path("back").exists()


def test_a_tensor_that_is_missing_is_named_with_what_there_is(model, capfd):
    save_file({"other": np.zeros(2, np.float32)}, "o.safetensors")
    assert export("--import=o.safetensors", "--config=config.py", "back") == 66
    assert "lacks" in (error := capfd.readouterr().err)
    assert "and 10 more" in error or "more" in error
    assert "it has other" in error


def test_targets_that_stand_already_stay(model):
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 0
    before = Path("w.safetensors").read_bytes()
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 64
    assert export("--import=w.safetensors", "--config=config.py", "pass-00000") == 64
    assert export("--import=w.safetensors", "--config=config.py", "w.safetensors", "--overwrite") == 64
    assert Path("w.safetensors").read_bytes() == before


@each("arguments", [[], ["--config=config.py", "--model=m"], ["--v2=x.tar", "--topology=T"]])
def test_an_import_names_one_network_and_no_other_parameters(arguments, model):
    assert export("--import=w.safetensors", *arguments, "back") == 64


def test_a_network_of_paddle_v2_comes_back_as_a_tar_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import paddle.v2 as paddle

    x = paddle.layer.data(name="x", type=paddle.data_type.dense_vector(3))
    y = paddle.layer.fc(input=x, size=2, name="y")
    parameters = paddle.parameters.create(y)
    parameters.set("_y.w0", np.arange(6, dtype=np.float32).reshape(3, 2))
    content, topology = io.BytesIO(), io.BytesIO()
    parameters.to_tar(content)
    paddle.topology.Topology(y).serialize_for_inference(topology)
    Path("p.tar").write_bytes(content.getvalue())
    Path("T").write_bytes(topology.getvalue())
    assert export("--v2=p.tar", "--topology=T", "--format=safetensors", "w.safetensors") == 0
    tensors, _ = read("w.safetensors")
    assert tensors["_y.w0"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert export("--import=w.safetensors", "--topology=T", "back.tar") == 0
    with Path("back.tar").open("rb") as file:
        assert Parameters.from_tar(file).get("_y.w0").tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_long_text_of_a_network_is_a_digest_in_the_metadata(model, monkeypatch):
    monkeypatch.setattr(weights, "MOST_TEXT", 100)
    assert export("--init_model_path=pass-00000", "--format=safetensors", "w.safetensors") == 0
    _, metadata = read("w.safetensors")
    assert len(metadata["paddle.config.sha256"]) == len(metadata["paddle.script.sha256"]) == 64
    assert "paddle.config" not in metadata

"""What modules of PyTorch compute from an exported state_dict is what this project computes."""

import numpy as np
import pytest
from exporting import TOLERANCE, difference, fill, make_positive, pad, random_slot

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ModelConfig
from tests.each import each
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.config import parse_config
from trainer.data.input_types import DataType, InputType
from trainer.export.model import TrainedModel
from trainer.export.onnx.network import LENGTHS
from trainer.export.program import main
from trainer.export.tensors.torch_layers import NotInTorchError, convert_layers, make_identifier
from trainer.export.tensors.torch_module import write_module
from trainer.network.network import Network
from trainer.storage.model_files import save_pass

torch = pytest.importorskip("torch", reason="torch is an extra (make test installs it)")
from trainer.export.tensors.torch_file import make_state, save  # noqa: E402  (it imports torch)

HEAD = "from paddle.trainer_config_helpers import *\nsettings(batch_size=7)\n"
IMAGE = "h = data_layer(name='x', size=2 * 9 * 7, height=9, width=7)\n"
WORDS = "h = embedding_layer(input=data_layer(name='x', size=11), size=5)\n"
FRAMES = "h = data_layer(name='x', size=5)\n"
SUMS = "h = fc_layer(input=h, size={}, act=LinearActivation())\n"
ROWS, IDS = InputType(126, 0, DataType.Dense), InputType(11, 1, DataType.Index)
SEQUENCE = InputType(5, 1, DataType.Dense)
CHAINS = {
    "planes": (IMAGE, ROWS, """
h = img_conv_layer(input=h, filter_size=3, num_filters=4, num_channels=2, padding=1, groups=2, act=ReluActivation())
h = img_pool_layer(input=h, pool_size=3, stride=2)
h = batch_norm_layer(input=h, act=TanhActivation())
h = img_cmrnorm_layer(input=h, size=3)
h = img_pool_layer(input=h, pool_size=3, stride=2, padding=1, pool_type=AvgPooling())
h = fc_layer(input=h, size=6, act=SigmoidActivation(), layer_attr=ExtraAttr(drop_rate=0.25))
outputs(fc_layer(input=h, size=3, act=SoftmaxActivation()))
"""),
    "strides": (IMAGE, ROWS, """
h = img_conv_layer(input=h, filter_size=3, filter_size_y=2, num_filters=4, num_channels=2, stride=2, stride_y=1,
                   bias_attr=False, act=SquareActivation())
h = img_conv_layer(input=h, filter_size=3, num_filters=2, stride=2, trans=True, act=AbsActivation())
h = prelu_layer(input=h, partial_sum=1)
outputs(slope_intercept_layer(input=h, slope=0.5, intercept=2))
"""),
    "rows": (FRAMES, InputType(5, 0, DataType.Dense), """
h = batch_norm_layer(input=fc_layer(input=h, size=4, act=BReluActivation()), act=STanhActivation())
with mixed_layer(size=6, act=SoftReluActivation(), bias_attr=True) as m:
    m += full_matrix_projection(h)
h = fc_layer(input=m, size=3, act=ExpActivation())
outputs(maxid_layer(input=fc_layer(input=h, size=4, act=LinearActivation())))
"""),
    "lstm": (WORDS, IDS, SUMS.format(12) + """
h = lstmemory(input=h)
outputs(fc_layer(input=pooling_layer(input=h, pooling_type=MaxPooling()), size=2, act=TanhActivation()))
"""),
    "reversed lstm": (FRAMES, SEQUENCE, SUMS.format(12) + """
outputs(last_seq(input=lstmemory(input=h, reverse=True)))
"""),
    "recurrent": (FRAMES, SEQUENCE, SUMS.format(4) + """
h = fc_layer(input=recurrent_layer(input=h), size=4, act=LinearActivation())
h = recurrent_layer(input=h, act=ReluActivation(), reverse=True)
outputs(first_seq(input=h))
"""),
    "average": (WORDS, IDS, "outputs(pooling_layer(input=h, pooling_type=AvgPooling()))\n"),
    "sum": (WORDS, IDS, "outputs(pooling_layer(input=h, pooling_type=SumPooling()))\n"),
    "root": (WORDS, IDS, "outputs(pooling_layer(input=h, pooling_type=SquareRootNPooling()))\n"),
    "frames": (FRAMES, SEQUENCE, """
h = fc_layer(input=h, size=4)
outputs(batch_norm_layer(input=h, act=LinearActivation()))
"""),
    "volumes": ("h = data_layer(name='x', size=2 * 4 * 5 * 5, height=5, width=5, depth=4)\n",
        InputType(200, 0, DataType.Dense), """
h = img_conv3d_layer(input=h, filter_size=3, num_filters=4, num_channels=2, padding=1, stride=1)
outputs(img_conv3d_layer(input=h, filter_size=2, num_filters=4, num_channels=4, stride=2, trans=True,
                         layer_type="deconv3d"))
"""),
}  # fmt: skip


def make(script, folder, kind=None):
    """A trained model of a config script, with random parameters."""
    (folder / "config.py").write_text(HEAD + script)
    config = parse_config(str(folder / "config.py"), "").model_config
    table = fill(ParameterTable(config.parameters))
    make_positive(config, table)
    for layer in config.layers:  # peepholes
        if layer.type == "lstmemory":
            table[layer.bias_parameter_name].value[4 * layer.size :] = 0
    return TrainedModel(config, table, {"x": kind} if kind else {})


def load(text, path):
    """The module that a generated text defines, with the state_dict of a file."""
    defined = {}
    exec(compile(text, "model.py", "exec"), defined)
    network = defined["Network"]()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


def read_state(model, path):
    """The tensors of an exported state_dict, and the names of the parameters that keep their own names."""
    layers, _ = convert_layers(model.config, model.parameters)
    state, others = make_state(model, layers)
    save(state, path)
    return torch.load(path, weights_only=True), others


def compute(model, batch, name):
    """What this project computes."""
    return Network(model.config, model.parameters, [name]).forward(batch)[name]


@each("name", list(CHAINS))
def test_a_chain_computes_the_same_numbers_as_a_module(name, tmp_path):
    begin, kind, rest = CHAINS[name]
    model = make(begin + rest, tmp_path, kind)
    read_state(model, tmp_path / "model.pt")
    layers, refused = convert_layers(model.config, model.parameters)
    network = load(write_module(model.config, model.types, layers, refused, "model.pt"), tmp_path / "model.pt")
    (output,) = model.outputs
    for samples in (1, 7):
        batch = {"x": random_slot(kind, samples, np.random.default_rng(samples))}
        expected = compute(model, batch, output)
        x, *lengths = map(torch.from_numpy, pad("x", batch["x"], kind, longer=1).values())
        if kind.type == DataType.Index:
            x = x.clamp(max=10)  # an Embedding refuses the padding of `pad`
        with torch.no_grad():
            outputs = {output: network(x, *lengths).numpy()}
        if expected.starts is not None:
            outputs[output + LENGTHS] = lengths[0].numpy()
        assert difference(output, expected, outputs) < TOLERANCE


def test_the_command_writes_a_state_dict_and_the_module_that_loads_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model = make(FRAMES + "outputs(fc_layer(input=h, size=2, name='y'))\n", tmp_path)
    save_pass(tmp_path / "pass-00000", model.parameters, {})
    arguments = ["--config=config.py", "--init_model_path=pass-00000", "--format=torch", "model.pt"]
    assert main(arguments) == 0
    assert "module model.py" in capfd.readouterr().out
    network = load((tmp_path / "model.py").read_text(), tmp_path / "model.pt")
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    expected = compute(model, {"x": Argument(value=x)}, "y")
    with torch.no_grad():
        assert difference("y", expected, {"y": network(torch.from_numpy(x)).numpy()}) < TOLERANCE
    (tmp_path / "model.pt").unlink()
    assert main(arguments) == 64  # the module stands already
    assert not (tmp_path / "model.pt").exists()
    assert main([*arguments[:-1], "model.py", "--overwrite"]) == 64


def test_layers_that_pytorch_lacks_keep_their_names_and_are_listed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    script = (
        WORDS
        + SUMS.format(12)
        + "memory = lstmemory(input=h, name='lstm')\n"
        + SUMS.format(9)
        + """
h = grumemory(input=h, name='gru')
outputs(last_seq(input=h), last_seq(input=memory))
"""
    )
    model = make(script, tmp_path)
    model.parameters["_lstm.wbias"].value[13] = 1  # a peephole
    save_pass(tmp_path / "pass-00000", model.parameters, {})
    assert main(["--config=config.py", "--init_model_path=pass-00000", "--format=torch", "m.pt"]) == 0
    found = capfd.readouterr()
    assert "no module: the network has the outputs" in found.out
    assert "gru: its reset gate comes before the product" in found.err
    assert "lstm: it has peepholes" in found.err
    state = torch.load("m.pt", weights_only=True)
    assert {"_gru.w0", "_gru.wbias", "_lstm.w0", "_lstm.wbias"} <= set(state)
    assert state["__embedding_0__.weight"].shape == (11, 5)
    assert "__fc_layer_0__.weight" in state
    assert not (tmp_path / "m.py").exists()


def test_several_inputs_are_one_product_and_a_tensor_layer_is_bilinear(tmp_path):
    script = """
a, b = data_layer(name='a', size=3), data_layer(name='b', size=4)
both = fc_layer(input=[a, b], size=2, act=LinearActivation(), name='both')
pairs = tensor_layer(a=a, b=b, size=5, act=LinearActivation(), bias_attr=True, name='pairs')
with mixed_layer(size=3, name='back') as back:
    back += trans_full_matrix_projection(b, param_attr=ParamAttr(name='w'))
outputs(both, pairs, back)
"""
    model = make(script, tmp_path)
    state, others = read_state(model, tmp_path / "model.pt")
    assert others == []
    rng = np.random.default_rng(1)
    batch = {name: random_slot(InputType(size, 0, 0), 7, rng) for name, size in (("a", 3), ("b", 4))}
    x, y = (torch.from_numpy(batch[name].value) for name in "ab")
    functional = torch.nn.functional
    found = {
        "both": functional.linear(torch.cat([x, y], 1), state["both.weight"], state["both.bias"]),
        "pairs": functional.bilinear(x, y, state["pairs.weight"], state["pairs.bias"]),
        "back": functional.linear(y, state["back.weight"]),
    }
    for name, one in found.items():
        assert difference(name, compute(model, batch, name), {name: one.numpy()}) < TOLERANCE


def test_a_product_that_another_layer_reads_too_is_in_the_lstm_and_beside_it(tmp_path):
    model = make(FRAMES + SUMS.format(12) + "outputs(lstmemory(input=h), h)\n", tmp_path)
    state, others = read_state(model, tmp_path / "model.pt")
    assert others == []
    assert {"__fc_layer_0__.weight", "__lstmemory_0__.weight_ih_l0"} <= set(state)


@each(
    "script, why",
    [
        ("outputs(fc_layer(input=[h, h], size=2), fc_layer(input=h, size=2))", "outputs"),
        ("outputs(addto_layer(input=[fc_layer(input=h, size=5), h], act=LinearActivation()))", "has 2 inputs"),
        ("outputs(sum_to_one_norm_layer(input=h))", "no form"),
        ("outputs(fc_layer(input=h, size=1, act=SequenceSoftmaxActivation()))", "activation"),
    ],
)
def test_what_is_no_chain_has_no_module(script, why, tmp_path):
    model = make(FRAMES + script, tmp_path, InputType(5, 0, 0))
    layers, refused = convert_layers(model.config, model.parameters)
    with pytest.raises(NotInTorchError, match=why):
        write_module(model.config, model.types, layers, refused, "model.pt")


@each(
    "name, found",
    [
        ("hidden", "hidden"),
        ("__fc_layer_0__", "__fc_layer_0__"),
        ("forward", "layer_forward"),
        ("register_buffer", "layer_register_buffer"),
        ("class", "layer_class"),
        ("__class__", "layer_class"),
        ("a.b@c", "a_b_c"),
        ("x\n    evil()", "x_____evil__"),
        ("1", "layer_1"),
        ("\u00e4", "layer_"),
        ("taken", "taken_2"),
    ],
)
def test_names_of_layers_become_identifiers(name, found):
    assert make_identifier(name, {"taken"}) == found
    assert found.isidentifier()


def test_the_text_of_a_module_has_no_word_of_the_network(tmp_path):
    evil = 'y"""\nimport os\nos.abort()\n"""'
    model = make(FRAMES + "outputs(fc_layer(input=h, size=2))\n", tmp_path, InputType(5, 0, 0))
    for layer in model.config.layers:
        if layer.type == "fc":
            layer.name = evil
    model.config.output_layer_names[:] = [evil]
    layers, refused = convert_layers(model.config, model.parameters)
    text = write_module(model.config, model.types, layers, refused, 'm"""\nos.abort()')
    compile(text, "model.py", "exec")
    assert "\nos.abort" not in text
    assert "\nimport os" not in text


def test_a_loop_of_layers_is_no_chain():
    loop = [LayerConfig(name=a, type="addto", inputs=[{"input_layer_name": b}]) for a, b in ("ab", "ba")]
    model = ModelConfig(type="nn", layers=loop, output_layer_names=["a"])
    with pytest.raises(NotInTorchError):
        write_module(model, {}, {}, {}, "m")


def test_a_state_dict_with_more_than_the_module_is_loaded_without_the_rest(tmp_path):
    script = FRAMES + "outputs(fc_layer(input=h, size=2, name='y'))\n" + "hidden = fc_layer(input=h, size=3)\n"
    model = make(script + "Evaluator(name='e', type='sum', inputs='__fc_layer_0__')\n", tmp_path, InputType(5, 0, 0))
    read_state(model, tmp_path / "model.pt")
    layers, refused = convert_layers(model.config, model.parameters)
    assert "strict=False" in write_module(model.config, model.types, layers, refused, "model.pt")


def test_an_output_can_be_chosen_and_flags_of_other_formats_are_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    script = "hidden = fc_layer(input=h, size=3, name='hidden')\noutputs(fc_layer(input=[hidden, h], size=2))\n"
    save_pass(tmp_path / "pass-00000", make(FRAMES + script, tmp_path).parameters, {})
    arguments = ["--config=config.py", "--init_model_path=pass-00000", "--outputs=hidden"]
    assert main([*arguments, "--format=torch", "m.pt"]) == 0
    assert "module m.py" in capfd.readouterr().out
    assert main([*arguments, "--format=torch", "--opset=17", "n.pt"]) == 64
    assert main([*arguments, "--format=safetensors", "n.safetensors"]) == 64

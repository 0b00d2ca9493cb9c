"""The text of a job, that is of a config with data sources, is v0.10.0's to the letter."""

import shutil
from pathlib import Path

import pytest

from paddle.utils import dump_config
from trainer.config import as_v0_10, run_config

GOLDEN = Path(__file__).parents[4] / "golden"
CASES, CONFIGS = GOLDEN / "config" / "layers", GOLDEN / "layers" / "configs"


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.txt")))
def test_a_job_prints_as_v0_10_printed_it(config_dir, capsys, case):
    config, _, mode = case.partition(".")
    for name in (config, "tiny"):
        shutil.copy(CONFIGS / f"{name}.py", config_dir)
    assert dump_config.main([f"{config}.py", "generating=1" if mode else ""]) == 0
    assert capsys.readouterr().out == (CASES / f"{case}.txt").read_text()


MAPS = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='provider', obj='process')
image = data_layer('image', 24, height=4, width=6)
row = data_layer('row', 24)
fc_layer([image, row], 2, name='before')
fc_layer([row, image], 2, name='second_input')
steps = data_layer('steps', 3)
recurrent_group(step=lambda step: fc_layer(step, 3, name='inside'), input=steps)
outputs(fc_layer(image, 2, name='after'))
"""


def test_height_and_width_are_those_of_the_first_input_until_the_first_group(parse_text):
    layers = {layer.name: layer for layer in as_v0_10(parse_text(MAPS)).model_config.layers}
    assert (layers["before"].height, layers["before"].width) == (4, 6)
    assert not layers["second_input"].HasField("height")
    assert not layers["after"].HasField("height")


def older_model(text):
    Path("job.py").write_text(f"from paddle.trainer_config_helpers import *\n{text}\n")
    parse = run_config("job.py")
    return parse.config.model_config, as_v0_10(parse.config, parse.marks).model_config


STATIC_IN_NESTED = """
x, s = data_layer('x', 3), data_layer('s', 4)
def inner(word, fixed):
    return fc_layer([word, fixed], 2, name='result')
def outer(sentence, fixed):
    return recurrent_group(inner, [sentence, StaticInput(fixed)], name='inner')
outputs(recurrent_group(outer, [SubsequenceInput(x), StaticInput(s, is_seq=True)], name='outer'))
"""


def test_a_static_input_of_a_static_input_is_called_after_its_agent(config_dir):
    message, older = older_model(STATIC_IN_NESTED)
    types = {layer.name: layer.type for layer in older.layers}
    assert types["__s_memory__+delay1@outer"] == "sequence_agent"
    assert types["____s_memory__+delay1_memory__@inner@outer"] == "mixed"
    result = next(layer for layer in older.layers if layer.name == "result@inner@outer")
    assert result.inputs[1].input_layer_name == "____s_memory__+delay1_memory__+delay1@inner@outer"
    assert older.sub_models[2].memories[0].boot_layer_name == "__s_memory__+delay1@outer"
    # the message from which the trainer builds its network is as it was
    assert [layer.name for layer in message.layers if "memory" in layer.name] == [
        "__memory_0__@outer",
        "__memory_1__@inner@outer",
    ]
    assert not any(link.HasField("has_subseq") for group in message.sub_models for link in group.in_links)


RAW_GROUP = """
model_type('recurrent_nn')
x, y = data_layer('x', 3), data_layer('y', 3)
RecurrentLayerGroupBegin('g', in_links=[Link('x', has_subseq=True), Link('y', has_subseq=True)],
                         out_links=[Link('z', has_subseq=True), 'last'], target_inlinkname='y')
m = Memory('z', 3, is_sequence=True, boot_layer='x')
Layer(name='z', type='fc', inputs=['x', 'y', m], size=3)
Layer(name='last', type='seqlastins', inputs=['z'])
RecurrentLayerGroupEnd('g')
Outputs('z', 'last')
"""


def test_a_raw_group_prints_what_its_links_and_memories_say(config_dir):
    older = older_model("from paddle.trainer.config_parser import *\n" + RAW_GROUP)[1]
    group = older.sub_models[1]
    assert [link.has_subseq for link in [*group.in_links, *group.out_links]] == [True, True, True, False]
    assert group.target_inlinkid == 1 and group.memories[0].is_sequence
    types = {layer.name: layer.type for layer in older.layers}
    assert types["x@g"] == "sequence_scatter_agent" and types["z+delay1@g"] == "sequence_agent"
    assert (types["z"], types["last"]) == ("sequence_gather_agent", "gather_agent")


def test_the_inlink_that_target_inlink_names_is_counted(config_dir):
    text = """
x, y = data_layer('x', 3), data_layer('y', 3)
outputs(recurrent_group(lambda a, b: fc_layer([a, b], 2), [x, y], name='g', targetInlink=y))"""
    message, older = older_model(text)
    assert older.sub_models[1].target_inlinkid == 1
    assert not message.sub_models[1].HasField("target_inlinkid")


NOT_SQUARE = """
row = fc_layer(data_layer('image', 24, height=4, width=6), 24)
outputs(img_conv_layer(row, filter_size=1, num_filters=1, num_channels=1, name='c'))"""
DATA = "define_py_data_sources2('train.list', None, module='provider', obj='process')"


@pytest.mark.parametrize(("data", "shape"), [(DATA, (4, 6)), ("", (6, 4))], ids=["job", "network"])
def test_an_image_layer_reads_the_map_that_was_handed_on_to_its_input(parse_text, data, shape):
    conv = parse_text(data + NOT_SQUARE).model_config.layers[-1]
    assert (conv.inputs[0].conv_conf.img_size_y, conv.inputs[0].conv_conf.img_size) == shape
    assert (conv.height, conv.width) == shape


def test_a_map_that_does_not_fit_is_not_handed_on(parse_text):
    row = "row = fc_layer(data_layer('image', 24, height=4, width=6), 10)\noutputs(batch_norm_layer(row))"
    norm = parse_text(f"{DATA}\n{row}").model_config.layers[-1]
    assert (norm.inputs[0].image_conf.img_size, norm.size) == (1, 10)


SHAPES = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='provider', obj='process')
image = data_layer('image', 24, height=4, width=6)
row = data_layer('row', 24)
concat_layer([image, row], name='image_first')
concat_layer([row, image], name='row_first')
outputs(image)
"""


def test_a_job_joins_layers_of_any_height_and_width(parse_text):
    """It was refused: the later version's rule, that all of them agree, held for jobs, too."""
    layers = {layer.name: layer for layer in as_v0_10(parse_text(SHAPES)).model_config.layers}
    assert (layers["image_first"].size, layers["image_first"].height, layers["image_first"].width) == (48, 4, 6)
    assert layers["row_first"].size == 48 and not layers["row_first"].HasField("height")


RAW = """
from paddle.trainer_config_helpers import *
define_py_data_sources2('train.list', None, module='provider', obj='process')
x = data_layer('x', 4)
data_layer('n', 2)
Layer(name='joined', type='seqconcat', inputs=['x', 'x'])
Layer(name='cut', type='subseq', inputs=['x', 'n', 'n'])
Layer(name='said', type='subseq', inputs=['x', 'n', 'n'], active_type='')
seq_concat_layer(x, x, name='helper')
outputs(x)
"""


def test_raw_sequence_layers_without_an_activation_are_called_linear(config_dir):
    (config_dir / "raw.py").write_text(RAW)
    parse = run_config("raw.py", "")
    layers = {layer.name: layer.active_type for layer in as_v0_10(parse.config, parse.marks).model_config.layers}
    wanted = {"joined": "linear", "cut": "linear", "said": "", "helper": ""}
    assert {name: layers[name] for name in wanted} == wanted
    assert {layer.active_type for layer in parse.config.model_config.layers} == {""}

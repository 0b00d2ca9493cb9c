"""Projections, operators, the layers made of them, and arithmetic of layers (specification 6, 7 and 13)."""

import math

import pytest
from config_messages import layer_of, parameter_of
from each import each
from google.protobuf import text_format

from paddle_base.proto import ModelConfig_pb2
from paddle_base.runtime.errors import ConfigError

INPUT = "x = data_layer('x', 6)\ny = data_layer('y', 6)\none = data_layer('one', 1)\n"


def projection(text):
    return text_format.Parse(text, ModelConfig_pb2.ProjectionConfig())


def test_the_weights_of_a_transposed_projection_are_those_of_the_other_way_round(parse_text):
    config = parse_text(f"""{INPUT}
shared = ParamAttr(name='shared')
narrow = mixed_layer(size=2, input=full_matrix_projection(x, param_attr=shared))
mixed_layer(size=6, input=[trans_full_matrix_projection(narrow, param_attr=shared)], name='back')""")
    assert [item.name for item in config.model_config.parameters] == ["shared"]
    assert list(parameter_of(config, "shared").dims) == [6, 2]
    assert layer_of(config, "back").inputs[0].input_parameter_name == "shared"
    assert layer_of(config, "back").inputs[0].proj_conf.name == "_back.w0"


# context_len, context_start, padding_attr: start, rows of padding
@each(
    "arguments, start, rows",
    [
        ("3", -1, 2),
        ("4", -2, 3),
        ("2", -1, 1),
        ("3, 0", 0, 2),
        ("3, -4", -4, 4),
        ("3, 2", 2, 4),
        ("3, padding_attr=None", -1, 2),
        ("3, padding_attr=True", -1, 2),
        ("3, padding_attr=False", -1, 0),
    ],
)
def test_the_padding_of_a_context_is_learnt_unless_it_is_switched_off(parse_text, arguments, start, rows):
    config = parse_text(f"{INPUT}with mixed_layer(name='m') as m:\n    m += context_projection(x, {arguments})")
    entry = layer_of(config, "m").inputs[0]
    assert entry.proj_conf.context_start == start
    assert entry.proj_conf.HasField("trainable_padding") and entry.proj_conf.trainable_padding == bool(rows)
    assert layer_of(config, "m").size == 6 * entry.proj_conf.context_length
    sizes = [
        (item.size, list(item.dims), item.initial_std, item.initial_smart) for item in config.model_config.parameters
    ]
    assert sizes == ([(6 * rows, [rows, 6], 0.0, False)] if rows else [])


def test_an_identity_with_an_offset_takes_the_size_of_the_mixed_layer(parse_text):
    config = parse_text(f"""{INPUT}
mixed_layer(size=2, input=[identity_projection(x, offset=0), identity_projection(y, offset=4)], name='m')""")
    first, second = (entry.proj_conf for entry in layer_of(config, "m").inputs)
    assert first == projection("type: 'identity_offset' name: '_m.w0' input_size: 6 output_size: 2 offset: 0")
    assert second.offset == 4 and first.HasField("offset")


def test_a_slice_is_of_whole_channels(parse_text):
    config = parse_text("""
image = data_layer('image', 48, height=4, width=4)
conv = img_conv_layer(image, filter_size=3, num_filters=5, padding=1)
mixed_layer(input=slice_projection(conv, [(0, 2), (3, 4)]), name='m')""")
    entry = layer_of(config, "m").inputs[0].proj_conf
    assert [(item.start, item.end) for item in entry.slices] == [(0, 32), (48, 64)]
    assert (layer_of(config, "m").size, entry.input_size, entry.output_size) == (48, 80, 48)


def test_a_convolution_as_a_projection_has_its_filters_and_their_initialisation(parse_text):
    config = parse_text("""
image = data_layer('image', 4 * 8 * 6, height=6, width=8)
shared = ParamAttr()
with mixed_layer(name='m', bias_attr=True) as m:
    m += conv_projection(image, filter_size=(3, 5), num_filters=2, stride=(2, 1), padding=(0, 2), groups=2,
                         param_attr=shared)
with mixed_layer(name='t') as t:
    t += conv_projection(image, filter_size=2, filter_size_y=3, num_filters=3, stride=2, trans=True)
assert shared.attr['initial_smart'] is False""")
    conv = layer_of(config, "m").inputs[0].proj_conf
    assert conv == projection("""
type: "conv" name: "_m.w0" input_size: 192 output_size: 36 num_filters: 2
conv_conf {
  filter_size: 3 channels: 4 stride: 2 padding: 0 groups: 2 filter_channels: 2 output_x: 3 img_size: 8
  caffe_mode: true filter_size_y: 5 padding_y: 2 stride_y: 1 output_y: 6 img_size_y: 6
}""")
    weight = parameter_of(config, "_m.w0")
    assert (weight.size, list(weight.dims), weight.initial_smart) == (2 * 4 * 15 // 2, [], False)
    assert weight.initial_std == math.sqrt(2 / (9 * 4))
    # after a convolution there is one bias per filter
    assert (layer_of(config, "m").bias_size, layer_of(config, "m").shared_biases) == (2, True)
    assert list(parameter_of(config, "_m.wbias").dims) == [1, 2]
    turned = layer_of(config, "t").inputs[0].proj_conf
    assert (turned.type, turned.conv_conf.filter_channels) == ("convt", 3)
    assert (turned.conv_conf.output_x, turned.conv_conf.output_y) == (8, 6)
    assert (turned.conv_conf.img_size, turned.conv_conf.img_size_y) == (16, 13)
    assert turned.output_size == layer_of(config, "t").size == 3 * 16 * 13
    assert parameter_of(config, "_t.w0").size == 3 * 4 * 6


def test_operators_put_their_further_inputs_at_the_end(parse_text):
    config = parse_text(f"""{INPUT}
with mixed_layer(name='m') as m:
    m += dotmul_operator(a=x, b=y)
    m += full_matrix_projection(one)
    m += dotmul_operator(x=y, y=x, scale=0.5)
outputs(m)""")
    mixed = layer_of(config, "m")
    assert [entry.input_layer_name for entry in mixed.inputs] == ["x", "one", "y", "y", "x"]
    assert [entry.HasField("proj_conf") for entry in mixed.inputs] == [False, True, False, False, False]
    assert mixed.operator_confs[0] == text_format.Parse(
        "type: 'dot_mul' input_indices: [0, 3] input_sizes: [6, 6] output_size: 6 dotmul_scale: 1",
        ModelConfig_pb2.OperatorConfig(),
    )
    assert list(mixed.operator_confs[1].input_indices) == [2, 4]
    assert mixed.operator_confs[1].dotmul_scale == 0.5
    assert mixed.inputs[1].input_parameter_name == "_m.w1"
    assert not mixed.HasField("bias_size")
    # the walk of outputs() takes an operator's layers together
    assert list(config.model_config.input_layer_names) == ["x", "y", "one"]


def test_a_convolution_with_filters_of_a_layer_has_no_parameter(parse_text):
    config = parse_text("""
image, filters = data_layer('image', 32 * 32), data_layer('filters', 3 * 3 * 1 * 64)
with mixed_layer(name='conv') as conv:
    conv += conv_operator(img=image, filter=filters, filter_size=3, num_filters=64, num_channels=1)
    conv += conv_projection(image, filter_size=3, num_filters=64, num_channels=1)
with mixed_layer(name='turned') as turned:
    turned += conv_operator(img=image, filter=filters, filter_size=3, num_filters=64, num_channels=1, stride=2,
                            padding=1, trans=True)
    turned += conv_projection(image, filter_size=3, num_filters=64, num_channels=1, stride=2, padding=1, trans=True)
""")
    conv, turned = layer_of(config, "conv"), layer_of(config, "turned")
    assert [entry.input_layer_name for entry in conv.inputs] == ["image", "image", "filters"]
    assert conv.operator_confs[0] == text_format.Parse(
        """type: "conv" input_indices: [0, 2] input_sizes: [1024, 576] output_size: 57600 num_filters: 64
conv_conf {
  filter_size: 3 channels: 1 stride: 1 padding: 0 groups: 1 filter_channels: 1 output_x: 30 img_size: 32
  caffe_mode: true filter_size_y: 3 padding_y: 0 stride_y: 1 output_y: 30 img_size_y: 32
}""",
        ModelConfig_pb2.OperatorConfig(),
    )
    assert conv.inputs[1].proj_conf.conv_conf == conv.operator_confs[0].conv_conf
    assert (conv.size, turned.size) == (64 * 30 * 30, 64 * 63 * 63)
    assert not conv.HasField("shared_biases")  # the first input is an operator
    maps = turned.operator_confs[0].conv_conf
    assert (maps.output_x, maps.img_size, maps.filter_channels) == (32, 63, 64)
    assert [item.name for item in config.model_config.parameters] == ["_conv.w1", "_turned.w1"]


def test_the_long_test_of_projections_ends_with_four_matrices(parse_text):
    config = parse_text("""
test = data_layer(name='test', size=100)
embedded = embedding_layer(input=test, size=256)
with mixed_layer(size=100) as m1:
    m1 += full_matrix_projection(input=embedded)
with mixed_layer(size=100) as m2:
    m2 += table_projection(input=m1)
with mixed_layer(size=100) as m3:
    m3 += identity_projection(input=m2)
with mixed_layer(size=100) as m4:
    m4 += dotmul_projection(input=m3)
with mixed_layer() as m5:
    m5 += context_projection(input=m4, context_len=3)
with mixed_layer() as m6:
    m6 += dotmul_operator(a=m3, b=m4)
    m6 += scaling_projection(m3)
end = mixed_layer(input=[full_matrix_projection(input=m5), trans_full_matrix_projection(input=m6)], size=100,
                  layer_attr=ExtraAttr(drop_rate=0.5, error_clipping_threshold=40))
outputs(end)""")
    sizes = {item.name: int(item.size) for item in config.model_config.layers}
    assert sizes == {
        "test": 100,
        "__embedding_0__": 256,
        **{f"__mixed_{index}__": 300 if index == 4 else 100 for index in range(7)},
    }
    table = layer_of(config, "__embedding_0__")
    assert (table.type, table.active_type, table.inputs[0].proj_conf.type) == ("mixed", "", "table")
    assert parameter_of(config, "___embedding_0__.w0").initial_std == 0.1
    end = layer_of(config, "__mixed_6__")
    assert (end.drop_rate, end.error_clipping_threshold) == (0.5, 40.0)
    shapes = {item.name: list(item.dims) for item in config.model_config.parameters}
    assert shapes == {
        "___embedding_0__.w0": [100, 256],
        "___mixed_0__.w0": [256, 100],
        "___mixed_1__.w0": [100, 100],
        "___mixed_3__.w0": [1, 100],
        "___mixed_4__.w0": [2, 100],
        "___mixed_5__.w1": [1, 1],
        "___mixed_6__.w0": [300, 100],
        "___mixed_6__.w1": [100, 100],
    }


def test_projections_side_by_side(parse_text):
    config = parse_text("""
a, b = data_layer('a', 10), data_layer('b', 10)
outputs(addto_layer(input=[a, b]), concat_layer(input=[a, b]),
        concat_layer(input=[identity_projection(a), identity_projection(b)]))
concat_layer([full_matrix_projection(a, size=3), identity_projection(b)], name='c', bias_attr=ParamAttr())
concat_layer([full_matrix_projection(a, size=3)], name='none', bias_attr=True)""")
    added, plain, projected = (layer_of(config, name) for name in config.model_config.output_layer_names)
    assert [added.name, plain.name, projected.name] == ["__addto_0__", "__concat_0__", "__concat_1__"]
    assert plain.type == "concat" and plain.HasField("height") and plain.depth == 1
    assert projected == text_format.Parse(
        """name: "__concat_1__" type: "concat2" size: 20 active_type: ""
inputs { input_layer_name: "a"
         proj_conf { type: "identity" name: "___concat_1__.w0" input_size: 10 output_size: 10 } }
inputs { input_layer_name: "b"
         proj_conf { type: "identity" name: "___concat_1__.w1" input_size: 10 output_size: 10 } }""",
        ModelConfig_pb2.LayerConfig(),
    )
    assert (layer_of(config, "c").size, layer_of(config, "c").bias_size) == (13, 13)
    assert list(parameter_of(config, "_c.w0").dims) == [10, 3]
    assert not layer_of(config, "none").HasField("bias_size")  # True was never made a ParamAttr here


def test_convolutions_side_by_side_share_their_biases(parse_text):
    config = parse_text("""
image = data_layer('image', 27, height=3, width=3)
concat_layer([conv_projection(image, filter_size=3, num_filters=n, padding=1) for n in (2, 4)], name='c',
             bias_attr=ParamAttr(initial_std=0))""")
    assert (layer_of(config, "c").size, layer_of(config, "c").bias_size) == (6 * 9, 6)
    assert layer_of(config, "c").shared_biases


def test_a_gated_unit_is_two_connections_and_their_product(parse_text):
    config = parse_text("""
data = data_layer(name='input', size=256)
outputs(gated_unit_layer(input=data, size=512, act=TanhActivation(),
    gate_attr=ExtraLayerAttribute(error_clipping_threshold=100.0), gate_param_attr=ParamAttr(initial_std=1e-4),
    gate_bias_attr=ParamAttr(initial_std=1), inproj_attr=ExtraLayerAttribute(error_clipping_threshold=100.0),
    inproj_param_attr=ParamAttr(initial_std=1e-4), inproj_bias_attr=ParamAttr(initial_std=1),
    layer_attr=ExtraLayerAttribute(error_clipping_threshold=100.0)))""")
    assert [item.name for item in config.model_config.layers[1:]] == [
        "__gated_unit_layer_0___input_proj",
        "__gated_unit_layer_0___gate",
        "__gated_unit_layer_0___gated_act",
    ]
    projected, gate, product = config.model_config.layers[1:]
    assert (projected.active_type, gate.active_type, product.active_type) == ("tanh", "sigmoid", "")
    assert {item.error_clipping_threshold for item in (projected, gate, product)} == {100.0}
    assert list(product.operator_confs[0].input_indices) == [0, 1] and product.size == 512
    assert [(item.name, item.initial_std, item.initial_smart) for item in config.model_config.parameters] == [
        ("___gated_unit_layer_0___input_proj.w0", 1e-4, False),
        ("___gated_unit_layer_0___input_proj.wbias", 1, False),
        ("___gated_unit_layer_0___gate.w0", 1e-4, False),
        ("___gated_unit_layer_0___gate.wbias", 1, False),
    ]


# what an expression with x and y of size 6, and `one` of size 1, is made of
def connect(name, *inputs, **fields):
    return name, inputs, fields


SUM = connect("__mixed_0__", "x", "y")
ARITHMETIC = {
    "x + 2": [connect("__slope_intercept_layer_0__", "x", slope=1, intercept=2)],
    "2 + x": [connect("__slope_intercept_layer_0__", "x", slope=1, intercept=2)],
    "x - 2": [connect("__slope_intercept_layer_0__", "x", slope=1, intercept=-2)],
    "2.5 - x": [
        connect("__slope_intercept_layer_0__", "x", slope=-1, intercept=0),
        connect("__slope_intercept_layer_1__", "__slope_intercept_layer_0__", slope=1, intercept=2.5),
    ],
    "x * 3": [connect("__slope_intercept_layer_0__", "x", slope=3, intercept=0)],
    "3 * x": [connect("__slope_intercept_layer_0__", "x", slope=3, intercept=0)],
    "-x": [connect("__slope_intercept_layer_0__", "x", slope=-1, intercept=0)],
    "x + y": [SUM],
    "x - y": [
        connect("__slope_intercept_layer_0__", "y", slope=-1, intercept=0),
        connect("__mixed_0__", "x", "__slope_intercept_layer_0__"),
    ],
    "x + one": [connect("__repeat_layer_0__", "one", num_filters=6), connect("__mixed_0__", "x", "__repeat_layer_0__")],
    "one + x": [connect("__repeat_layer_0__", "one", num_filters=6), connect("__mixed_0__", "x", "__repeat_layer_0__")],
    "x * one": [connect("__scaling_layer_0__", "one", "x")],
    "one * x": [connect("__scaling_layer_0__", "one", "x")],
    "one * (one + 0)": [
        connect("__slope_intercept_layer_0__", "one", slope=1, intercept=0),
        connect("__scaling_layer_0__", "one", "__slope_intercept_layer_0__"),
    ],
}


@each("expression", ARITHMETIC)
def test_arithmetic_makes_layers(parse_text, expression):
    config = parse_text(f"{INPUT}outputs({expression})")
    made = config.model_config.layers[3:]
    wanted = ARITHMETIC[expression]
    assert [(item.name, *(entry.input_layer_name for entry in item.inputs)) for item in made] == [
        (name, *inputs) for name, inputs, _ in wanted
    ]
    for item, (_, _, fields) in zip(made, wanted, strict=True):
        assert {key: getattr(item, key) for key in fields} == fields
        assert all(item.HasField(key) for key in fields)


def test_adding_in_place_to_a_finished_mixed_layer_makes_another(parse_text):
    config = parse_text(f"{INPUT}z = x + y\nz += 1\nz += x\noutputs(z)")
    assert list(config.model_config.output_layer_names) == ["__mixed_1__"]


@each(
    "function, kind",
    [
        ("exp", "exponential"),
        ("log", "log"),
        ("abs", "abs"),
        ("sigmoid", "sigmoid"),
        ("tanh", "tanh"),
        ("square", "square"),
        ("relu", "relu"),
        ("sqrt", "sqrt"),
        ("reciprocal", "reciprocal"),
    ],
)
def test_functions_of_layers_are_identities_with_an_activation(parse_text, function, kind):
    config = parse_text(f"{INPUT}layer_math.{function}(x); layer_math.{function}(x, name='mine')")
    made = layer_of(config, f"__{function}_0__")
    assert (made.type, made.active_type, made.size) == ("mixed", kind, 6)
    assert made.inputs[0].proj_conf == projection(
        f"type: 'identity' name: '___{function}_0__.w0' input_size: 6 output_size: 6"
    )
    assert layer_of(config, "mine").active_type == kind


def test_the_built_in_functions_stay_what_they_are(parse_text):
    parse_text("import math\nassert abs(-1) == 1 and math.exp(0) == 1")


def test_a_layer_after_resize_has_the_new_number_of_columns(parse_text):
    config = parse_text(f"{INPUT}r = resize_layer(x, 3)\nassert r.size == 6\nfc_layer(r, 2, name='f')\nr * 2")
    assert list(parameter_of(config, "_f.w0").dims) == [3, 2]
    assert layer_of(config, "__slope_intercept_layer_0__").size == 3


def test_sums_of_sums_are_walked_once(parse_text):
    config = parse_text("""
x = data_layer(name='data', size=100)
for i in range(32):
    x = addto_layer([x, x])
outputs(fc_layer(input=fc_layer(input=x, size=32, act=ReluActivation()), size=10, act=SoftmaxActivation()))""")
    assert len(config.model_config.layers) == 35
    assert list(config.model_config.input_layer_names) == ["data"]


@each(
    "call, message",
    [
        ("mixed_layer(input=identity_projection(x), size=5)", "'identity' of 'x' is 6, but the layer's size is 5"),
        ("mixed_layer(input=full_matrix_projection(x), name='m')", r"\(name='m'\): the layer's size is not set"),
        ("mixed_layer(size=3, input=x)", "it must be a projection or an operator"),
        ("mixed_layer(size=3, input=[])", "at least one projection"),
        ("m = mixed_layer(size=3)\nm += x", r"mixed_layer\(name='__mixed_0__'\): .*must be a projection"),
        ("with mixed_layer(size=3) as m:\n    pass", r"mixed_layer\(name='__mixed_0__'\): .*at least one projection"),
        ("fc_layer(mixed_layer(size=3), 2)", "this layer was never finished"),
        ("m = x + y\nm += identity_projection(x)", r"mixed_layer\(name='__mixed_0__'\): the layer is finished"),
        ("dotmul_operator(x, one)", r"dotmul_operator\(\): b has size 1; it must be 6"),
        ("dotmul_operator(x)", r"dotmul_operator\(\): b is None; it must be a layer"),
        ("identity_projection(x, offset=6)", r"identity_projection\(\): offset is 6; it must be less than 6"),
        ("identity_projection(x, offset=2, size=5)", "has 4 columns"),
        ("mixed_layer(size=5, input=identity_projection(x, offset=2))", "needs 5 columns; its input has 6"),
        ("slice_projection(x, [(0, 1)])", "must be an img_conv_layer"),
        ("conv_projection(x, 3, 4)", "give num_channels"),
        ("conv_projection(x, 3, 4, num_channels=1)", "filter_size is 3; a window of this size does not fit into 2"),
        ("conv_operator(x, y, 2, 4, num_channels=6)", "filter has size 6, but the filters need 96 values"),
        ("concat_layer([identity_projection(x), x])", "must be a projection or an operator"),
        ("concat_layer([full_matrix_projection(x)])", "has no size of its own: give it size="),
        ("concat_layer([dotmul_operator(x, y)])", "but not operators"),
        ("concat_layer([x, y], bias_attr=True)", "has no bias"),
        ("x * y", "one of the sizes 6 and 6 must be 1"),
        ("data_layer('z', 3) + x", "the sizes 3 and 6 must be equal, or one of them must be 1"),
        ("x + 'a'", "only layers and numbers"),
        ("x + True", "only layers and numbers"),
    ],
)
def test_impossible_terms_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=f"^config.py line [56].*{message}"):
        parse_text(f"{INPUT}{call}")

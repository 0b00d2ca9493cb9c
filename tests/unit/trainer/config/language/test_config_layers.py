"""Layers and costs: names, shapes and attributes in the message (specification 3 and 6)."""

import pytest
from config_messages import layer_of
from each import each

from paddle_base.runtime.errors import ConfigError


def test_names_count_the_unnamed_calls_of_each_prefix(parse_text):
    config = parse_text("""
x = data_layer('x', 4)
fc_layer(x, 2); fc_layer(x, 2, name='mine'); fc_layer(x, 2, name=None); addto_layer([x, x]); dropout_layer(x, 0.5)""")
    assert [layer.name for layer in config.model_config.layers] == [
        "x",
        "__fc_layer_0__",
        "mine",
        "__fc_layer_1__",
        "__addto_0__",
        "__dropout_0__",
    ]


def test_a_data_layer_with_a_map_knows_its_channels(parse_text):
    config = parse_text("""
image = data_layer('image', 3 * 8 * 4, height=8, width=4)
assert (image.num_filters, image.height, image.width, image.depth) == (3, 8, 4, 1)
half = data_layer('half', 12, height=8)
assert half.num_filters is None""")
    assert (layer_of(config, "image").height, layer_of(config, "image").width) == (8, 4)
    assert not layer_of(config, "half").HasField("height")


def test_a_size_that_python_3_division_made_a_float_is_taken(parse_text):
    assert layer_of(parse_text("data_layer('x', 256 / 4)"), "x").size == 64


def test_a_list_of_map_is_a_list_of_inputs(parse_text):
    config = parse_text("fc_layer(map(lambda name: data_layer(name, 3), ['a', 'b']), 2)")
    assert [item.input_layer_name for item in config.model_config.layers[2].inputs] == ["a", "b"]


@each(
    "call",
    ["fc_layer([x, x], 2, param_attr={}, name='f')", "selective_fc_layer([x, x], 4, x, param_attr={}, name='f')"],
)
def test_one_param_attr_with_a_name_is_shared_by_all_inputs(parse_text, call):
    one, several = (
        parse_text("x = data_layer('x', 4)\n" + call.format(attr)).model_config
        for attr in ("ParamAttr(name='w')", "[ParamAttr(name='w')] * 2")
    )
    assert one == several
    assert [item.input_parameter_name for item in one.layers[1].inputs][:2] == ["w", "w"]


def test_extra_attributes_are_written_where_the_layer_supports_them(parse_text):
    config = parse_text("""
x = data_layer('x', 4, layer_attr=ExtraAttr(device=1))
fc_layer(x, 2, name='h', layer_attr=ExtraAttr(drop_rate=0.5, error_clipping_threshold=10, device=-1))
fc_layer(x, 2, name='none', layer_attr=ExtraAttr(drop_rate=0))""")
    hidden = layer_of(config, "h")
    assert (hidden.drop_rate, hidden.error_clipping_threshold, hidden.device) == (0.5, 10.0, -1)
    assert not layer_of(config, "none").HasField("drop_rate")
    assert layer_of(config, "x").device == 1


def test_addto_and_concat_always_tell_their_map(parse_text):
    config = parse_text("""
a, b = data_layer('a', 8, height=4, width=2), data_layer('b', 8)
addto_layer([a, b], name='sum'); concat_layer([b, b], name='both'); dropout_layer(b, 0.3, name='drop')""")
    assert (layer_of(config, "sum").height, layer_of(config, "sum").width, layer_of(config, "sum").depth) == (4, 2, 1)
    both = layer_of(config, "both")
    assert both.size == 16 and both.HasField("height") and both.height == 0
    assert layer_of(config, "drop").type == "addto" and layer_of(config, "drop").drop_rate == 0.3


def test_classification_cost_adds_its_evaluators_and_weight(parse_text):
    config = parse_text("""
p = fc_layer(data_layer('x', 4), 2, act=SoftmaxActivation())
label, w = data_layer('label', 2), data_layer('w', 1)
classification_cost(p, label, w, name='c', coeff=0.5, evaluator=[classification_error_evaluator, auc_evaluator])""")
    cost = layer_of(config, "c")
    assert (cost.type, cost.size, cost.coeff) == ("multi-class-cross-entropy", 1, 0.5)
    assert [item.input_layer_name for item in cost.inputs] == ["__fc_layer_0__", "label", "w"]
    evaluators = config.model_config.evaluators
    assert [(item.name, item.type) for item in evaluators] == [
        ("classification_error_evaluator", "classification_error"),
        ("auc_evaluator", "last-column-auc"),
    ]
    assert list(evaluators[0].input_layers) == ["__fc_layer_0__", "label", "w"]
    assert list(config.model_config.sub_models[0].evaluator_names) == [item.name for item in evaluators]


@pytest.mark.parametrize(
    "call, name, kind",
    [
        ("cross_entropy(p, y)", "__cross_entropy_0__", "multi-class-cross-entropy"),
        ("square_error_cost(p, y)", "__square_error_cost_0__", "square_error"),
        ("regression_cost(p, y)", "__square_error_cost_0__", "square_error"),
        ("mse_cost(p, y)", "__mse_cost_0__", "square_error"),
    ],
    ids=lambda value: value.partition("(")[0],
)
def test_costs_are_named_after_their_function(parse_text, call, name, kind):
    cost = parse_text(f"p = data_layer('p', 2)\ny = data_layer('y', 2)\n{call}").model_config.layers[2]
    assert (cost.name, cost.type, cost.size, cost.coeff) == (name, kind, 1, 1.0)


def test_layers_that_compute_with_rows(parse_text):
    """The network of the golden test_ntm_layers, described in section 18 and kept back."""
    config = parse_text("""
w, a, b, c, d = [data_layer(name, size) for name, size in [('w', 1), ('a', 100), ('b', 100), ('c', 200), ('d', 31)]]
outputs(interpolation_layer([a, b], w), power_layer(a, w), scaling_layer(a, w), cos_sim(a, b), cos_sim(a, c, size=2),
        sum_to_one_norm_layer(a), conv_shift_layer(a, d), tensor_layer(a, b, size=1000),
        slope_intercept_layer(a, slope=0.7, intercept=0.9), linear_comb_layer(weights=b, vectors=c))""")
    found = [
        (item.type, item.size, [source.input_layer_name for source in item.inputs])
        for item in config.model_config.layers[5:]
    ]
    assert found == [
        ("interpolation", 100, ["w", "a", "b"]),
        ("power", 100, ["w", "a"]),
        ("scaling", 100, ["w", "a"]),
        ("cos", 1, ["a", "b"]),
        ("cos_vm", 2, ["a", "c"]),
        ("sum_to_one_norm", 100, ["a"]),
        ("conv_shift", 100, ["a", "d"]),
        ("tensor", 1000, ["a", "b"]),
        ("slope_intercept", 100, ["a"]),
        ("convex_comb", 2, ["b", "c"]),
    ]
    assert list(config.model_config.parameters[0].dims) == [100, 100, 1000]
    assert layer_of(config, "__cos_sim_0__").cos_scale == 1.0
    line = layer_of(config, "__slope_intercept_layer_0__")
    assert (line.slope, line.intercept) == (0.7, 0.9)
    assert list(config.model_config.input_layer_names) == ["w", "a", "b", "c", "d"]


def test_an_activation_other_than_sigmoid_is_warned_of(parse_text, capsys):
    parse_text("x = data_layer('x', 3)\nmulti_binary_label_cross_entropy(fc_layer(x, 3), x)")
    warning = "TanhActivation() is not a recommended activation for multi_binary_label_cross_entropy"
    assert warning in capsys.readouterr().err


def test_evaluators_write_only_what_is_given(parse_text):
    config = parse_text("""
p, y = data_layer('p', 2), data_layer('y', 2)
classification_error_evaluator(p, y, name='e', top_k=3, threshold=0.7)
sum_evaluator(p)
chunk_evaluator(p, y, 'IOB', 11, name='f1', excluded_chunk_types=[1, 2])
precision_recall_evaluator(p, y, positive_label=1)
seqtext_printer_evaluator(p, 'result.txt', id_input=y)""")
    error, total, chunk, recall, text = config.model_config.evaluators
    assert (error.top_k, error.classification_threshold) == (3, 0.7)
    assert (total.name, total.type) == ("__sum_evaluator_0__", "sum") and not total.HasField("top_k")
    assert (chunk.chunk_scheme, chunk.num_chunk_types, list(chunk.excluded_chunk_types)) == ("IOB", 11, [1, 2])
    assert recall.positive_label == 1
    assert list(text.input_layers) == ["y", "p"]


@each(
    "call, message",
    [
        ("fc_layer(x, 0)", r"fc_layer\(name='__fc_layer_0__'\): size is 0; it must be a positive integer"),
        ("fc_layer('x', 2)", "input is 'x'; it must be a layer"),
        ("fc_layer([], 2)", "at least one layer"),
        ("fc_layer(x, 2, act='tanh')", "it must be an activation"),
        ("fc_layer(x, 2, bias_attr='b')", "it must be True, False or a ParamAttr"),
        ("fc_layer(x, 2, layer_attr=0.5)", "it must be an ExtraAttr"),
        (
            "fc_layer([x, data_layer('y', 5)], 2, param_attr=ParamAttr(name='w'))",
            r"the shared parameter 'w' has size 8 and dims \[4, 2\]; here it would have size 10 and dims \[5, 2\]",
        ),
        ("data_layer('x', 4)", "there is a layer 'x' already"),
        ("data_layer('y', 4, layer_attr=ExtraAttr(drop_rate=0.5))", "drop_rate, which this layer does not support"),
        ("data_layer('y', 5, height=2, width=2)", "multiple of width"),
        ("addto_layer([x, data_layer('y', 5)])", "its size must be 4"),
        ("concat_layer([x, data_layer('y', 4, height=2, width=2)])", "instead of"),
        ("classification_cost(x, x)", r"its activation must be SoftmaxActivation\(\)"),
        ("classification_cost(p, p)", "it must be a data_layer"),
        ("classification_cost(p, x, evaluator=sum_evaluator)", "it must be an evaluator of classification"),
        ("square_error_cost(x, x, weight=x)", "its size must be 1"),
        ("square_error_cost(x, x, coeff='a')", "it must be a number"),
        ("interpolation_layer([x], x)", "it must be two layers"),
        ("scaling_layer(x, x)", "weight is .*its size must be 1"),
        ("cos_sim(x, x, size=2)", "its size must be 8, 2 times the size of 'a'"),
        ("conv_shift_layer(x, x)", "its size must be odd"),
        ("linear_comb_layer(x, x, size=2)", "its size must be 2 times 4"),
        ("clip_layer(x, 2, 1)", "min is 2; it must be less than max, 1"),
        ("dot_prod_layer(x, data_layer('y', 3))", "its size must be 4, the size of 'input1'"),
        ("huber_classification_cost(x, x)", "input is .*its size must be 1"),
        ("rank_cost(x, x, x)", "left is .*its size must be 1"),
        ("lambda_cost(x, x)", "score is .*its size must be 1"),
        ("crf_layer(x, data_layer('y', 5))", "the sizes of input and label must both be 4"),
        ("ctc_layer(x, x, size=4)", "it must be 5, the size of the label plus one for the blank"),
        ("nce_layer(x, x, neg_distribution=[0.5, 0.2, 0.2, 0.2])", "it must have 4 items whose sum is 1"),
        ("hsigmoid(p, p)", "it must be a data_layer"),
        ("hsigmoid(x, data_layer('y', 2))", "num_classes is 2; it must be greater than 2"),
        ("smooth_l1_cost(x, data_layer('y', 2))", "its size must be 4"),
        ("multiplex_layer([x, x])", "at least two layers to choose from"),
        ("selective_fc_layer(x, 3, select=x)", "its size must be 3"),
        ("chunk_evaluator(x, x, 'IO', 3)", "one of IOB, IOE, IOBES, plain"),
    ],
    ids=str,
)
def test_impossible_layers_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text(f"x = data_layer('x', 4)\np = fc_layer(x, 4, act=SoftmaxActivation(), name='p')\n{call}")


def test_a_function_of_the_script_can_say_what_it_supports(parse_text):
    text = """
@layer_support('drop_rate')
def mine(x, layer_attr=None):
    return fc_layer(x, 2, name='h', layer_attr=layer_attr)
mine(data_layer('x', 4), layer_attr=ExtraAttr({}))"""
    assert layer_of(parse_text(text.format("drop_rate=0.5, device=0")), "h").drop_rate == 0.5
    with pytest.raises(ConfigError, match=r"line 6: mine\(\): layer_attr has error_clipping_threshold"):
        parse_text(text.format("error_clipping_threshold=1"))

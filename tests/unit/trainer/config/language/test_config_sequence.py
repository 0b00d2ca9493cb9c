"""Layers and networks over sequences that no golden text shows: names, fields, parameters and errors."""

import math

import pytest
from config_messages import layer_of, sources

from paddle_base.runtime.errors import ConfigError


def shapes(config):
    return {one.name: list(one.dims) for one in config.model_config.parameters}


def test_poolings_of_sequences(parse_text):
    config = parse_text("""
x = data_layer('dat_in', 100)
poolings = [MaxPooling, AvgPooling, SumPooling]
levels = [AggregateLevel.TO_SEQUENCE, AggregateLevel.TO_NO_SEQUENCE]
made = [pooling_layer(x, agg_level=level, pooling_type=kind()) for kind in poolings for level in levels]
made += [pooling_layer(x, agg_level=levels[1], pooling_type=kind(), stride=5) for kind in poolings]
made.append(pooling_layer(x, pooling_type=MaxPooling(output_max_index=True)))
outputs(made)""")
    layers = config.model_config.layers[1:]
    assert [layer.name for layer in layers] == [f"__seq_pooling_{n}__" for n in range(10)]
    assert [layer.type for layer in layers] == ["max"] * 2 + ["average"] * 4 + ["max"] + ["average"] * 2 + ["max"]
    strategies = ["", "", "average", "average", "sum", "sum", "", "average", "sum", ""]
    assert [layer.average_strategy for layer in layers] == strategies
    assert [layer.HasField("average_strategy") for layer in layers] == [bool(strategy) for strategy in strategies]
    assert [layer.trans_type for layer in layers] == ["seq", "non-seq"] * 3 + ["non-seq"] * 4
    assert [layer.seq_pool_stride for layer in layers] == [-1] * 6 + [5] * 3 + [-1]
    assert all(layer.HasField("trans_type") and layer.HasField("seq_pool_stride") for layer in layers)
    assert [layer.HasField("output_max_index") for layer in layers] == [False] * 9 + [True]
    assert {(layer.active_type, layer.size) for layer in layers} == {("", 100)}
    assert not config.model_config.parameters


def test_each_activation_of_simple_lstm_has_its_place(parse_text):
    config = parse_text("""
outputs(simple_lstm(data_layer('x', 8), 2, act=ReluActivation(), gate_act=TanhActivation(),
                    state_act=SigmoidActivation(), name='l'))""")
    layer = layer_of(config, "l")
    assert (layer.active_type, layer.active_gate_type, layer.active_state_type) == ("relu", "tanh", "sigmoid")


def test_a_piece_of_each_sequence(parse_text):
    config = parse_text("""
x, begins, sizes = data_layer('x', 4), data_layer('begins', 1), data_layer('sizes', 1)
sub_seq_layer(x, begins, sizes, act=ReluActivation(), bias_attr=ParamAttr(name='b'), name='cut')""")
    layer = layer_of(config, "cut")
    assert (layer.type, layer.size, layer.active_type, layer.bias_parameter_name) == ("subseq", 4, "relu", "b")
    assert sources(layer) == ["x", "begins", "sizes"]


def test_costs_with_a_weight(parse_text):
    config = parse_text("""
label, weight = data_layer('label', 1), data_layer('weight', 1)
fc = fc_layer(data_layer('input', 300), 10, act=SoftmaxActivation())
outputs(classification_cost(fc, label, weight), square_error_cost(fc, label, weight),
        nce_layer(fc, label=data_layer('multi_class_label', 500), weight=weight,
                  neg_distribution=[0.002] * 500))""")
    cost, error = layer_of(config, "__cost_0__"), layer_of(config, "__square_error_cost_0__")
    nce = layer_of(config, "__nce_layer_0__")
    assert sources(cost) == sources(error) == ["__fc_layer_0__", "label", "weight"]
    assert sources(nce) == ["__fc_layer_0__", "multi_class_label", "weight"]
    assert (nce.num_classes, nce.num_neg_samples, nce.active_type) == (500, 10, "sigmoid")
    assert list(nce.neg_sampling_dist) == [0.002] * 500
    evaluator = config.model_config.evaluators[0]
    assert list(evaluator.input_layers) == ["__fc_layer_0__", "label", "weight"]
    assert shapes(config)["___nce_layer_0__.w0"] == [500, 10] and shapes(config)["___nce_layer_0__.wbias"] == [1, 500]
    assert list(config.model_config.input_layer_names) == ["input", "label", "weight", "multi_class_label"]


def test_cross_entropy_over_a_beam(parse_text):
    config = parse_text("""
states, scores = data_layer('sentence_states', 32), data_layer('sentence_scores', 1)
k1 = kmax_seq_score_layer(scores, beam_size=5)
sub = sub_nested_seq_layer(states, selected_indices=k1)
s2 = fc_layer(sub, 1, act=LinearActivation())
k2 = kmax_seq_score_layer(scores, beam_size=5)
span = seq_slice_layer(sub, starts=k2, ends=None)
s3 = fc_layer(span, 1, act=LinearActivation())
k3 = kmax_seq_score_layer(s3, beam_size=5)
ids = [data_layer(name, 1) for name in ('sentences_ids', 'start_ids', 'end_ids')]
outputs(cross_entropy_over_beam([BeamInput(candidate_scores=scores, selected_candidates=k1, gold=ids[0]),
                                 BeamInput(s2, k2, ids[1]), BeamInput(s3, k3, ids[2])]))""")
    cost = layer_of(config, "__cross_entropy_over_beam_0__")
    assert sources(cost) == [
        *("sentence_scores", "__kmax_seq_score_layer_0__", "sentences_ids"),
        *("__fc_layer_0__", "__kmax_seq_score_layer_1__", "start_ids"),
        *("__fc_layer_1__", "__kmax_seq_score_layer_2__", "end_ids"),
    ]
    assert not cost.HasField("size") and not cost.HasField("coeff")
    names = ["sentence_scores", "sentences_ids", "sentence_states", "start_ids", "end_ids"]
    assert list(config.model_config.input_layer_names) == names
    assert layer_of(config, "__seq_slice_layer_0__").select_first


def test_a_gru_in_both_directions(parse_text):
    config = parse_text("outputs(bidirectional_gru(data_layer('data', 120), size=40, return_seq=True))")
    name = "__bidirectional_gru_0__"
    names = [layer.name for layer in config.model_config.layers]
    assert names == ["data", *(f"{name}_{way}" for way in ("fw_transform", "fw", "bw_transform", "bw")), name]
    forward, backward, joined = (layer_of(config, name + end) for end in ("_fw", "_bw", ""))
    assert (forward.type, forward.reversed, backward.reversed, forward.size) == ("gated_recurrent", False, True, 40)
    assert (joined.type, joined.size, sources(joined)) == ("concat", 80, [f"{name}_fw", f"{name}_bw"])
    assert (joined.height, joined.width, joined.depth) == (0, 0, 1)
    assert layer_of(config, f"{name}_fw_transform").HasField("bias_size") is False
    assert shapes(config)[f"_{name}_fw_transform.w0"] == [120, 120] and shapes(config)[f"_{name}_fw.w0"] == [40, 120]
    assert len(config.model_config.parameters) == 6


def test_an_lstm_in_both_directions_ends_with_the_rows_that_have_seen_all(parse_text, capsys):
    config = parse_text("outputs(bidirectional_lstm(data_layer('d', 6), 2, fwd_act=ReluActivation(), name='bi'))")
    names = [layer.name for layer in config.model_config.layers]
    assert names == [
        "d",
        "lstm_transform_bi_fw",
        "bi_fw",
        "lstm_transform_bi_bw",
        "bi_bw",
        "bi_fw_last",
        "bi_bw_last",
        "bi",
    ]
    assert layer_of(config, "bi_bw_last").select_first and not layer_of(config, "bi_fw_last").HasField("select_first")
    assert (layer_of(config, "bi_fw").active_type, layer_of(config, "bi_bw").active_type) == ("relu", "tanh")
    assert shapes(config)["_bi_fw.w0"] == [2, 2, 4] and shapes(config)["_bi_fw.wbias"] == [1, 14]
    assert "WARNING" not in capsys.readouterr().err


def test_the_wrong_end_of_a_recurrent_layer_is_warned_of(parse_text, capsys):
    parse_text("l = lstmemory(data_layer('x', 4), reverse=True)\nlast_seq(l)\nfirst_seq(recurrent_layer(l))")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "__last_seq_0__" in lines[0] and "__first_seq_0__" in lines[1]


def test_convolution_and_pooling_of_a_text_have_one_counter_under_both_names(parse_text):
    config = parse_text("""
x = data_layer('x', 4)
text_conv_pool(x, context_len=4, hidden_size=3)
sequence_conv_pool(x, context_len=2, hidden_size=3, fc_act=ReluActivation(), pool_type=AvgPooling(),
                   context_proj_layer_name='windows', context_proj_param_attr=True, context_start=0)
fc_layer(x, 1)""")
    window = layer_of(config, "__sequence_conv_pooling_0___conv_proj").inputs[0].proj_conf
    assert (window.context_start, window.context_length, window.trainable_padding) == (-2, 4, False)
    assert shapes(config)["___sequence_conv_pooling_0___conv_fc.w0"] == [16, 3]
    assert layer_of(config, "__sequence_conv_pooling_0__").type == "max"
    assert shapes(config)["_windows.w0"] == [1, 4]
    assert layer_of(config, "__sequence_conv_pooling_1___conv_fc").active_type == "relu"
    assert layer_of(config, "__sequence_conv_pooling_1__").average_strategy == "average"


ATTENTION = """
encoded, projected, state = data_layer('e', 6), data_layer('p', 4), data_layer('s', 4)
"""


def test_simple_attention(parse_text):
    config = parse_text(ATTENTION + "outputs(simple_attention(encoded, projected, state, name='a'))")
    rows = [(layer.name, layer.type, layer.size, sources(layer)) for layer in config.model_config.layers[3:]]
    assert rows == [
        ("a_transform", "mixed", 4, ["s"]),
        ("a_expand", "expand", 4, ["a_transform", "e"]),
        ("a_combine", "mixed", 4, ["a_expand", "p"]),
        ("a_softmax", "fc", 1, ["a_combine"]),
        ("a_scaling", "scaling", 6, ["a_softmax", "e"]),
        ("a_pooling", "average", 6, ["a_scaling"]),
    ]
    assert layer_of(config, "a_combine").active_type == "tanh"
    assert layer_of(config, "a_softmax").active_type == "sequence_softmax"
    assert layer_of(config, "a_pooling").average_strategy == "sum"
    assert shapes(config) == {"_a_transform.w0": [4, 4], "_a_softmax.w0": [4, 1]}


def test_attention_by_products(parse_text):
    config = parse_text(ATTENTION + "outputs(dot_product_attention(projected, encoded, state, name='a'))")
    rows = [(layer.name, layer.type, sources(layer)) for layer in config.model_config.layers[3:]]
    assert rows == [
        ("a_expand", "expand", ["s", "p"]),
        ("a_dot-product", "dot_prod", ["a_expand", "p"]),
        ("a_softmax", "fc", ["a_dot-product"]),
        ("a_scaling", "scaling", ["a_softmax", "e"]),
        ("a_pooling", "average", ["a_scaling"]),
    ]


@pytest.mark.parametrize("kind", ["dot-product attention", "additive attention"])
def test_attention_with_several_heads(parse_text, kind):
    config = parse_text(
        f"{ATTENTION}outputs(multi_head_attention(state, encoded, projected, 3, 2, 2, {kind!r}, name='m'))"
    )
    names = [layer.name for layer in config.model_config.layers[3:]]
    begin = ["m_query_proj", "__expand_layer_0__", "m_key_proj", "m_value_proj"]
    heads = []
    for head in (0, 1):
        scores = [f"m_combine_{head}"]
        if kind.startswith("dot"):
            scores = [f"m_dot-product_{head}", f"m_dot-product_scaling_{head}"]
        heads += [f"__mixed_{3 * head + part}__" for part in range(3)]
        heads += [*scores, f"m_softmax_{head}", f"m_scaling_{head}", f"m_pooling_{head}"]
    assert names == [*begin, *heads, "__concat_0__"]
    offsets = [layer_of(config, f"__mixed_{n}__").inputs[0].proj_conf.offset for n in range(6)]
    assert offsets == [0, 0, 0, 3, 3, 2]
    assert layer_of(config, "__concat_0__").size == 4
    if kind.startswith("dot"):
        assert layer_of(config, "m_dot-product_scaling_1").slope == pytest.approx(math.sqrt(1 / 3))


def test_one_step_of_a_gru_by_mixed_layers(parse_text):
    config = parse_text("""
x, last = data_layer('x', 6), data_layer('last', 2)
gru_step_naive_layer(x, last, name='g', param_attr=ParamAttr(name='shared'), layer_attr=ExtraAttr(drop_rate=0.5))
fc_layer(x, 1)""")
    names = [layer.name for layer in config.model_config.layers[2:7]]
    assert names == ["g_update", "g_reset", "g_reset_output", "g_output_candidate", "g"]
    assert [layer_of(config, name).drop_rate for name in names] == [0.5, 0.5, 0, 0.5, 0]
    assert [layer_of(config, name).active_type for name in names] == ["sigmoid", "sigmoid", "", "tanh", ""]
    wanted = ["shared", "_g_update.wbias", "_g_reset.wbias", "_g_output_candidate.wbias"]
    assert list(shapes(config))[:4] == wanted
    assert [one.dotmul_scale for one in layer_of(config, "g").operator_confs] == [-1.0, 1.0]


@pytest.mark.parametrize(
    "call, message",
    [
        ("pooling_layer(x, stride=2, agg_level='seq')", r"pooling_layer\(name='__seq_pooling_0__'\): stride is 2"),
        ("pooling_layer(x, pooling_type=MaxPooling)", r"it must be an object: MaxPooling\(\)"),
        ("pooling_layer(x, pooling_type=CudnnMaxPooling())", "it must be MaxPooling"),
        ("last_seq(x, agg_level='word')", "agg_level is 'word'"),
        ("first_seq(x, stride=0)", "stride is 0; it must be a positive integer"),
        ("seq_slice_layer(x, None, None)", "starts or ends must be given"),
        ("seq_slice_layer(x, data_layer('y', 1), data_layer('z', 2))", "its size must be 1, the size of starts"),
        ("seq_concat_layer(x, data_layer('y', 5))", "b is .*; its size must be 4, the size of 'a'"),
        ("kmax_seq_score_layer(x)", "its size must be 1"),
        ("row_conv_layer(x, 0)", "context_len is 0"),
        ("cross_entropy_over_beam([x])", "it must be a BeamInput or a list of BeamInputs"),
        ("BeamInput(x, x, x)", "candidate_scores is .*; its size must be 1"),
        ("lstmemory(data_layer('y', 5))", "input is .*; its size must be a multiple of 4"),
        ("lstmemory(x, size=2)", "size is 2; it must be 1, the size of input divided by 4"),
        ("lstmemory(x, act=SoftmaxActivation())", r"act is SoftmaxActivation\(\); it must be TanhActivation"),
        ("grumemory(x)", "its size must be a multiple of 3"),
        ("lstm_step_layer(x, data_layer('s', 2))", "its size must be 8, four times the size of the state"),
        ("gru_step_layer(data_layer('y', 6), data_layer('s', 3))", "its size must be 2, a third of the input's"),
        (
            "gru_step_naive_layer(data_layer('y', 6), data_layer('s', 2), bias_attr=ParamAttr(name='b'))",
            "three layers would share this parameter",
        ),
        ("get_output_layer(x, 'state')", "arg_name is 'state'; 'x' has the outputs default"),
        ("simple_attention(x, x, data_layer('s', 3))", "decoder_state is .*; its size must be 4"),
        (
            "multi_head_attention(x, x, x, 1, 1, 1, 'both')",
            "attention_type is 'both'; it must be 'dot-product attention'",
        ),
    ],
    ids=str,
)
def test_impossible_sequence_layers_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text("x = data_layer('x', 4)\n" + call)

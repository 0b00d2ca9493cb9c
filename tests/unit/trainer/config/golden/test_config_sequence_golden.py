"""Sequence and recurrent layers: what the networks of the legacy's test configs parse to, as described in its
specification, section 18."""

from pathlib import Path

from each import each

from trainer.config import to_text

GOLDEN = Path(__file__).parents[4] / "golden" / "config" / "protostr"

CONFIGS = {
    "last_first_seq": """
data = data_layer('data', 30)
levels = [AggregateLevel.TO_SEQUENCE, AggregateLevel.TO_NO_SEQUENCE]
picked = [pick(data, agg_level=level) for pick in (first_seq, last_seq) for level in levels]
outputs(picked + [pick(data, agg_level=AggregateLevel.TO_NO_SEQUENCE, stride=5) for pick in (first_seq, last_seq)])
""",
    "test_expand_layer": """
data, data_seq = data_layer('data', 30), data_layer('data_seq', 30)
outputs(expand_layer(data, data_seq, expand_level=ExpandLevel.FROM_SEQUENCE),
        expand_layer(data, data_seq, expand_level=ExpandLevel.FROM_NO_SEQUENCE))
""",
    "test_kmax_seq_socre_layer": """
outputs(kmax_seq_score_layer(fc_layer(data_layer('input_seq', 128), 1, act=ExpActivation()), beam_size=5))
""",
    "test_row_conv": "outputs(row_conv_layer(data_layer('data', 2560), context_len=19, act=ReluActivation()))",
    "test_seq_concat_reshape": """
data1, data2 = data_layer('data1', 30), data_layer('data2', 30)
outputs([seq_concat_layer(data1, data2), seq_reshape_layer(data1, 5)])
""",
    "test_seq_slice_layer": """
word, starts, ends = data_layer('word', 128), data_layer('starts', 5), data_layer('ends', 5)
outputs(seq_slice_layer(word, starts, ends), seq_slice_layer(word, starts, None), seq_slice_layer(word, None, ends))
""",
    "test_sub_nested_seq_select_layer": """
outputs(sub_nested_seq_layer(data_layer('input_seq', 300), selected_indices=data_layer('input', 5)))
""",
    "test_lstmemory_layer": """
outputs(lstmemory(data_layer('data', 128), reverse=True, gate_act=TanhActivation(), act=TanhActivation(), size=32))
""",
    "test_grumemory_layer": """
outputs(grumemory(data_layer('data', 120), size=40, reverse=True, gate_act=TanhActivation(), act=SigmoidActivation()))
""",
    "simple_rnn_layers": """
hidden = fc_layer(data_layer('data', 200), 200, act=SigmoidActivation())
rnn = recurrent_layer(hidden, act=SigmoidActivation())
rnn2 = recurrent_layer(hidden, act=SigmoidActivation(), reverse=True)
def projected(size):
    return fc_layer(hidden, size, act=LinearActivation(), bias_attr=False)
lstm1 = lstmemory(projected(800), act=SigmoidActivation())
lstm2 = lstmemory(projected(800), act=SigmoidActivation(), reverse=True)
gru1 = grumemory(projected(600), act=SigmoidActivation())
gru2 = grumemory(projected(600), act=SigmoidActivation(), reverse=True)
outputs(last_seq(rnn), first_seq(rnn2), last_seq(lstm1), first_seq(lstm2), last_seq(gru1), first_seq(gru2))
""",
    "shared_gru": """
settings(learning_rate=1e-4, batch_size=1000)
data_a, data_b = data_layer('data_a', 100), data_layer('data_b', 100)
mixed_param, gru_param = ParamAttr(name='mixed_param'), ParamAttr(name='gru_param')
gru_bias = ParamAttr(name='gru_bias', initial_mean=0., initial_std=0.)
softmax_param = ParamAttr(name='softmax_param')
grus = [simple_gru(data, 200, mixed_param_attr=mixed_param, mixed_bias_param_attr=False, gru_bias_attr=gru_bias,
                   gru_param_attr=gru_param) for data in (data_a, data_b)]
predict = fc_layer([last_seq(gru) for gru in grus], 10, param_attr=[softmax_param, softmax_param], bias_attr=False,
                   act=SoftmaxActivation())
outputs(classification_cost(predict, data_layer('label', 10)))
""",
}


@each("name", CONFIGS)
def test_a_network_prints_as_its_golden_text(parse_text, name):
    golden = (GOLDEN / f"{name}.protostr").read_text()
    assert to_text(parse_text(CONFIGS[name]).model_config) + "\n" == golden

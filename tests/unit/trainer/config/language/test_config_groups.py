"""Recurrent groups, memories and beam search: names, order of layers, links (specification 12), and the errors."""

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError

RNN_GROUP = """
seq, sub_seq = data_layer('seq_input', 100), data_layer('sub_seq_input', 100)
label = data_layer('label', 1)

def named(name):
    def step(x):
        mem = memory(name=name, size=200)
        return fc_layer([x, mem], 200, name=name)
    return step

def unnamed(x):
    mem = memory(name=None, size=200)
    out = fc_layer([x, mem], 200)
    mem.set_input(out)
    return out

with mixed_layer() as lstm_param:
    lstm_param += full_matrix_projection(seq, size=400)
with mixed_layer() as gru_param:
    gru_param += full_matrix_projection(seq, size=300)
outputs(last_seq(recurrent_group(named('rnn_forward'), seq)),
        first_seq(recurrent_group(named('rnn_back'), seq, reverse=True)),
        last_seq(recurrent_group(named('rnn_subseq_forward'), SubsequenceInput(sub_seq))),
        last_seq(lstmemory_group(lstm_param, size=100)),
        last_seq(gru_group(gru_param, size=100)),
        last_seq(recurrent_group(unnamed, seq)))
"""
SHARED_LSTM = """
data_a, data_b = data_layer('data_a', 100), data_layer('data_b', 100)
mixed_param, lstm_param = ParamAttr(name='mixed_param'), ParamAttr(name='lstm_param')
lstm_bias = ParamAttr(name='lstm_bias', initial_mean=0., initial_std=0.)
softmax_param = ParamAttr(name='softmax_param')
def lstm(data):
    with mixed_layer(size=400, bias_attr=False) as projected:
        projected += full_matrix_projection(data, param_attr=mixed_param)
    return lstmemory_group(projected, param_attr=lstm_param, lstm_bias_attr=lstm_bias, input_proj_bias_attr=False)
lstms = [lstm(data_a), lstm(data_b)]
predict = fc_layer([last_seq(one) for one in lstms], 10, param_attr=[softmax_param] * 2, bias_attr=False,
                   act=SoftmaxActivation())
outputs(classification_cost(predict, data_layer('label', 10)))
"""


def rows(model, begin=0, end=None):
    """Return (name, type, size, names of inputs) of layers; `@~` stands for the group's name."""
    found = []
    for layer in model.layers[begin:end]:
        inputs = [entry.input_layer_name for entry in layer.inputs]
        found.append((layer.name, layer.type, layer.size, inputs))
    return found


def links(sub_model):
    """Return the memories, in-links and out-links of a sub-model as pairs of names."""
    return (
        [(memory.layer_name, memory.link_name) for memory in sub_model.memories],
        [(link.layer_name, link.link_name) for link in sub_model.in_links],
        [(link.layer_name, link.link_name) for link in sub_model.out_links],
    )


def test_groups_of_every_kind_have_their_layers_in_order(parse_text):
    model = parse_text(RNN_GROUP).model_config
    assert model.type == "recurrent_nn"
    first = "@__recurrent_group_0__"
    assert rows(model, 5, 11) == [
        ("__recurrent_group_0__", "recurrent_layer_group", 0, []),
        ("seq_input" + first, "scatter_agent", 100, []),
        ("rnn_forward+delay1" + first, "agent", 200, []),
        ("rnn_forward" + first, "fc", 200, ["seq_input" + first, "rnn_forward+delay1" + first]),
        ("rnn_forward", "gather_agent", 200, []),
        ("__last_seq_0__", "seqlastins", 200, ["rnn_forward"]),
    ]
    lstm = "@__lstm_group_0___recurrent_group"
    name = "__lstm_group_0__"
    begin = [layer.name for layer in model.layers].index("__lstm_group_0___recurrent_group")
    assert rows(model, begin, begin + 8) == [
        ("__lstm_group_0___recurrent_group", "recurrent_layer_group", 0, []),
        ("__mixed_0__" + lstm, "scatter_agent", 400, []),
        (f"{name}+delay1{lstm}", "agent", 100, []),
        (f"{name}_state+delay1{lstm}", "agent", 100, []),
        (f"{name}_input_recurrent{lstm}", "mixed", 400, ["__mixed_0__" + lstm, f"{name}+delay1{lstm}"]),
        (f"{name}{lstm}", "lstm_step", 100, [f"{name}_input_recurrent{lstm}", f"{name}_state+delay1{lstm}"]),
        (f"{name}_state{lstm}", "get_output", 100, [f"{name}{lstm}"]),
        (name, "gather_agent", 100, []),
    ]
    step = model.layers[begin + 4]
    assert step.inputs[1].input_parameter_name == f"_{name}_input_recurrent{lstm}.w1"
    assert step.inputs[1].proj_conf.name == f"_{name}_input_recurrent.w1"  # without the group
    assert (step.inputs[0].proj_conf.type, step.HasField("bias_size")) == ("identity", False)
    assert model.layers[begin + 6].inputs[0].input_layer_argument == "state"
    bias = model.layers[begin + 5].bias_parameter_name
    assert {parameter.name: parameter.size for parameter in model.parameters}[bias] == 300
    gru = "@__gru_group_0___recurrent_group"
    begin = [layer.name for layer in model.layers].index("__gru_group_0___recurrent_group")
    assert rows(model, begin + 3, begin + 5) == [
        ("__gru_group_0__" + gru, "gru_step", 100, ["__mixed_1__" + gru, "__gru_group_0__+delay1" + gru]),
        ("__gru_group_0__", "gather_agent", 100, []),
    ]


def test_a_memory_consumes_a_number_also_when_it_has_a_name(parse_text):
    model = parse_text(RNN_GROUP).model_config
    group = model.sub_models[-1]
    assert group.name == "__recurrent_group_3__"
    suffix = "@__recurrent_group_3__"
    # three groups, two memories of the LSTM and one of the GRU come before it
    assert links(group) == (
        [("__fc_layer_0__" + suffix, "__memory_6__" + suffix)],
        [("seq_input", "seq_input" + suffix)],
        [("__fc_layer_0__" + suffix, "__fc_layer_0__")],
    )
    names = [parameter.name for parameter in model.parameters]
    assert (
        "___fc_layer_0__@__recurrent_group_3__.w0" in names and "___fc_layer_0__@__recurrent_group_3__.wbias" in names
    )


def test_sub_models_are_listed_as_they_are_opened_and_the_root_has_root_layers_only(parse_text):
    model = parse_text(RNN_GROUP).model_config
    assert [(one.name, one.reversed) for one in model.sub_models] == [
        ("root", False),
        ("__recurrent_group_0__", False),
        ("__recurrent_group_1__", True),
        ("__recurrent_group_2__", False),
        ("__lstm_group_0___recurrent_group", False),
        ("__gru_group_0___recurrent_group", False),
        ("__recurrent_group_3__", False),
    ]
    root = model.sub_models[0]
    assert not root.HasField("reversed") and all(one.HasField("reversed") for one in model.sub_models[1:])
    assert "rnn_forward" in root.layer_names and "__recurrent_group_0__" in root.layer_names
    assert not any("@" in name for name in root.layer_names)
    assert list(model.input_layer_names) == ["seq_input", "sub_seq_input"]  # label is not reached
    assert list(model.output_layer_names) == [f"__{kind}__" for kind in OUTPUTS]


OUTPUTS = ("last_seq_0", "first_seq_0", "last_seq_1", "last_seq_2", "last_seq_3", "last_seq_4")


def test_parameters_of_two_lstm_groups_are_shared_by_name(parse_text):
    model = parse_text(SHARED_LSTM).model_config
    assert [(one.name, one.size, list(one.dims)) for one in model.parameters] == [
        ("mixed_param", 40000, [100, 400]),
        ("lstm_param", 40000, [100, 400]),
        ("lstm_bias", 300, [1, 300]),
        ("softmax_param", 1000, [100, 10]),
    ]
    assert list(model.input_layer_names) == ["data_a", "data_b", "label"]
    assert [layer.name for layer in model.layers][-4:] == ["__last_seq_1__", "__fc_layer_0__", "label", "__cost_0__"]
    step = next(layer for layer in model.layers if layer.type == "lstm_step")
    assert (step.active_type, step.active_gate_type, step.active_state_type) == ("tanh", "sigmoid", "tanh")
    assert len(model.layers) == 2 + 2 * 9 + 5


MEMORIES = """
x, state = data_layer('x', 4), data_layer('state', 3)
def step(frame, whole):
    first = memory(name='a', size=3, boot_layer=state)
    second = memory(name='a', size=3, boot_bias=ParamAttr(initial_std=0.), boot_bias_active_type=TanhActivation())
    third = memory(name='a', size=3, boot_with_const_id=2, memory_name='ignored')
    out = fc_layer([frame, whole, first], 3, name='a')
    return [out, fc_layer(out, 2, name='b')]
"""


def test_a_memory_begins_with_a_layer_a_bias_or_an_id(parse_text):
    text = MEMORIES.replace("third = memory(name='a'", "third = memory(name='b'").replace(
        "size=3, boot_with", "size=2, boot_with"
    )
    text = text.replace("second = memory(name='a', size=3", "second = memory(name=None, size=3, memory_name='own'")
    text = text.replace("out = ", "second.set_input(first); out = ")
    model = parse_text(text + "outputs(recurrent_group(step, [x, StaticInput(state)], name='g'))").model_config
    static, first, second, third = model.sub_models[1].memories
    assert (static.layer_name, static.link_name, static.boot_layer_name) == (
        "__memory_0__@g",
        "__memory_0__@g",
        "state",
    )
    assert (first.link_name, first.boot_layer_name) == ("a+delay1@g", "state")
    assert not first.HasField("boot_bias_active_type") and not first.HasField("boot_with_const_id")
    assert (second.link_name, second.boot_bias_parameter_name) == ("own@g", "_own@g.wbias")
    assert (second.boot_bias_active_type, second.layer_name) == ("tanh", "a+delay1@g")
    assert (third.link_name, third.boot_with_const_id) == ("b+delay1@g", 2)
    assert list(model.output_layer_names) == ["a", "b"]
    assert list(model.input_layer_names) == ["x", "state"]
    assert [link.link_name for link in model.sub_models[1].out_links] == ["a", "b"]
    agent = next(layer for layer in model.layers if layer.name == "own@g")
    assert not agent.HasField("bias_parameter_name")


@each(
    "call, message",
    [
        (
            "memory('a', 3)",
            r"memory\(name='a'\): memory\(\) can be used only inside of the step function of a recu",
        ),
        ("recurrent_group(lambda x: memory('a', 3), data_layer('x', 3), name='g')", "which its step does not make"),
        ("recurrent_group(lambda x: memory(None, 3), data_layer('x', 3))", "was not called"),
        (
            "recurrent_group(lambda x: [memory('a', 3), fc_layer(x, 2, name='a')][1], data_layer('x', 3), name='g')",
            r"memory 'a\+delay1@g' has size 3, but the layer that it rem",
        ),
        (
            "recurrent_group(lambda x: 3, data_layer('x', 3))",
            "step is 3; the step function must return one or more layers",
        ),
        ("recurrent_group(lambda x: x, [3])", "input is 3; it must be layers, SubsequenceInputs and StaticInputs"),
        (
            "y = data_layer('y', 1)\nrecurrent_group(lambda x: fc_layer(y, 1), data_layer('x', 3), name='g')",
            "the layer 'y' is not in the recurrent group 'g'; make it an input of the group",
        ),
        ("fc_layer(data_layer('x', 1), 1, name='a@b')", "has an @"),
        (
            "kept = []\nrecurrent_group(lambda f: kept.append(fc_layer(f, 1)) or f, data_layer('x', 3), name='g')",
            "there is a layer 'x' already",
        ),
        (
            "kept = []\nrecurrent_group(lambda f: kept.append(fc_layer(f, 1)) or fc_layer(f, 1), data_layer('x', 3))\n"
            "last_seq(kept[0])",
            "the layer '__fc_layer_0__@__recurrent_group_0__' is inside of a recurrent group; let its step function",
        ),
        ("beam_search(lambda x: [], GeneratedInput(3, 'e', 2), 0, 1, 3)", "must return the layer of probabilities"),
        (
            "x = data_layer('x', 3)\nrecurrent_group(lambda f: memory('a', 3, boot_layer=x, boot_with_const_id=1), x)",
            "give only one of boot_layer, boot_bias and boot_with_const_id",
        ),
        ("StaticInput(data_layer('x', 3), size=4)", "size is 4; the input's size is 3"),
        ("beam_search(lambda x: x, [], 0, 1, 3)", "it must be StaticInputs and one GeneratedInput"),
        (
            "beam_search(lambda x: x, [data_layer('x', 1), GeneratedInput(3, 'e', 2)], 0, 1, 3)",
            "it must be StaticInputs",
        ),
        ("GeneratedInput(0, 'e', 2)", "size is 0; it must be a positive integer"),
        # a table named the id, and told to change the data
        (
            "beam_search(lambda x: x, GeneratedInput(3, 'e', 2), bos_id=3, eos_id=1, beam_size=2)",
            "bos_id is 3; it must be an id below 3, the size of the GeneratedInput",
        ),
        ("beam_search(lambda x: x, GeneratedInput(3, 'e', 2), 0, -1, 3)", "eos_id is -1; it must not be negative"),
        (
            "beam_search(lambda x: x, [StaticInput(data_layer('x', 3))], 0, 1, 3)",
            r"input is \[<StaticInput>\]; it must",
        ),
        ("fc_layer(sum_evaluator, 3)", "input is <function sum_evaluator>; it must be a layer"),
    ],
    ids=str,
)
def test_impossible_groups_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text(call)


def test_old_arguments_are_taken(parse_text):
    model = parse_text("""
x = data_layer('x', 8)
lstmemory_group(x, mixed_bias_attr=True, mixed_layer_attr=ExtraAttr(error_clipping_threshold=5), name='l')
recurrent_group(lambda frame: fc_layer(frame, 2), x, is_generating=False, targetInlink=x)
lstmemory(x, layer_attr=ExtraAttr(drop_rate=0.5), name='dropped')
fc_layer(x, 1, name='out')""").model_config
    layers = {layer.name: layer for layer in model.layers}
    mixed = layers["l_input_recurrent@l_recurrent_group"]
    assert mixed.bias_size == 8 and mixed.error_clipping_threshold == 5
    assert layers["dropped"].drop_rate == 0.5


def test_a_step_gets_other_values_than_layers_as_they_are(parse_text):
    model = parse_text("""
def step(frame, size, fixed, act):
    return fc_layer([frame, fixed], size, act=act, name='f')
x = data_layer('x', 8)
recurrent_group(step, [x, 5, StaticInput(data_layer('s', 2)), TanhActivation()], name='g')""").model_config
    assert next(layer for layer in model.layers if layer.name == "f@g").size == 5
    assert [link.layer_name for link in model.sub_models[1].in_links] == ["x"]


def test_a_beam_search_gives_by_default_as_many_results_as_its_beam_has_of_up_to_500_ids(parse_text):
    """What it is made of is recorded: case generate_beam."""
    generator = (
        parse_text("""
word = GeneratedInput(size=7, embedding_name='table', embedding_size=2)
step = lambda word: fc_layer([word, memory('p', 7)], 7, act=SoftmaxActivation(), name='p')
outputs(beam_search(step, [word], bos_id=0, eos_id=1, beam_size=4, name='gen'))""")
        .model_config.sub_models[1]
        .generator
    )
    assert (generator.max_num_frames, generator.num_results_per_sample, generator.beam_size) == (500, 4, 4)
    assert not generator.HasField("log_prob")

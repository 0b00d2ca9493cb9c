"""Recurrent groups of programs, whose step functions run when the group is called."""

import pytest

import paddle.v2 as paddle
from paddle_base.runtime.errors import ConfigError

layer, data_type = paddle.layer, paddle.data_type


@pytest.fixture
def emb():
    return layer.embedding(input=layer.data(name="word", type=data_type.integer_value_sequence(10)), size=8)


def proto(*outputs):
    return paddle.topology.Topology(list(outputs)).proto()


def names(*outputs):
    return [one.name for one in proto(*outputs).layers]


def test_the_layers_of_memories_come_before_the_other_inputs_of_a_group(emb):
    dense = layer.data(name="dense", type=data_type.dense_vector(3))
    static, boot = (layer.fc(input=dense, size=8, name=name) for name in ("static", "boot"))

    def step(frame, constant):
        second = layer.fc(input=frame, size=8, name="second")
        first = layer.fc(input=frame, size=8, name="first")
        state = layer.memory(name="state", size=8, boot_layer=boot)
        return layer.addto(input=[first, second, state, constant], name="state")

    group = layer.recurrent_group(name="g", step=step, input=[emb, layer.StaticInput(static)])
    found = names(group)
    assert found[:6] == ["dense", "static", "boot", "word", "__embedding_layer_0__", "g"]
    assert found[6:] == [
        "__embedding_layer_0__@g",
        "__memory_0__@g",
        "first@g",
        "second@g",
        "state+delay1@g",
        "state@g",
        "state",
    ]


def test_a_layer_that_only_a_memory_needs_is_made(emb):
    """In v0.10 a layer that no result needed did not exist, also if a memory remembered it."""

    def step(frame):
        out, state = (layer.memory(name=name, size=2) for name in ("out", "state"))
        gates = layer.mixed(
            size=8, input=[layer.identity_projection(input=frame), layer.full_matrix_projection(input=out)]
        )
        lstm = layer.lstm_step(name="out", input=gates, state=state, size=2)
        layer.get_output(name="state", input=lstm, arg_name="state")
        return lstm

    assert "state@g" in names(layer.recurrent_group(name="g", step=step, input=emb))


def test_a_memory_without_a_name_gets_its_layer_by_set_input(emb):
    def step(frame):
        state = layer.memory(name=None, size=8)
        result = layer.addto(input=[frame, state])
        state.set_input(result)
        return result

    (memory,) = proto(layer.recurrent_group(name="g", step=step, input=emb)).sub_models[1].memories
    assert memory.layer_name == "__addto_layer_0__@g"


def test_groups_nest_and_give_several_results():
    word = layer.data(name="word", type=data_type.integer_value_sub_sequence(10))

    def outer(sentence):
        before = layer.memory(name="last", size=8)

        def inner(frame):
            state = layer.memory(name="state", size=8, boot_layer=before)
            return layer.fc(input=[frame, state], size=8, name="state"), layer.fc(input=frame, size=2)

        states, others = layer.recurrent_group(name="inner", step=inner, input=sentence)
        layer.last_seq(input=states, name="last")
        return others

    group = layer.recurrent_group(
        name="outer", step=outer, input=layer.SubsequenceInput(layer.embedding(input=word, size=8))
    )
    assert {one.name for one in proto(group).sub_models} == {"root", "outer", "inner@outer"}
    assert group.size == 2


def test_a_step_function_can_ask_for_sizes_and_takes_other_values(emb):
    seen = []

    def step(frame, number):
        wide = layer.fc(input=frame, size=frame.size * number)
        seen.append((frame.size, wide.size))
        return wide

    group = layer.recurrent_group(step, [emb, 3])
    assert seen == [(8, 24)] and group.size == 24
    assert "__fc_layer_0__@__recurrent_group_0__" in names(group)


def test_a_beam_search_makes_its_generator(emb):
    last = layer.last_seq(input=emb)

    def step(constant, word):
        state = layer.memory(name="state", size=8, boot_layer=last)
        hidden = layer.fc(input=[constant, word, state], size=8, name="state")
        return layer.fc(input=hidden, size=20, act=paddle.activation.Softmax())

    beam = layer.beam_search(
        name="decoder",
        step=step,
        input=[layer.StaticInput(last), layer.GeneratedInput(size=20, embedding_name="e", embedding_size=5)],
        bos_id=0,
        eos_id=1,
        beam_size=3,
        max_length=7,
    )
    model = proto(beam)
    generator = model.sub_models[1].generator
    assert (generator.beam_size, generator.max_num_frames, generator.num_results_per_sample) == (3, 7, 3)
    assert list(model.output_layer_names) == ["__beam_search_predict__"]
    assert list(model.input_layer_names) == ["word"]


def test_layers_of_a_group_and_outside_of_it_are_kept_apart(emb):
    inner = []

    def reading(frame):
        return layer.addto(input=[frame, outside])

    def losing(frame):
        inner.append(layer.fc(input=frame, size=3))
        return inner[0]

    outside = layer.fc(input=emb, size=8, name="outside")
    with pytest.raises(ConfigError, match=r"'outside' is not in the recurrent group 'g'.*use StaticInput"):
        proto(layer.recurrent_group(name="g", step=reading, input=emb))
    layer.recurrent_group(step=losing, input=emb)
    with pytest.raises(ConfigError, match="inside of a recurrent group; let its step function return"):
        proto(layer.fc(input=inner, size=4))
    with pytest.raises(ConfigError, match="has a memory of the layer 'nothing', which its step does not make"):
        proto(layer.recurrent_group(step=lambda x: layer.addto([x, layer.memory("nothing", 8)]), input=emb))

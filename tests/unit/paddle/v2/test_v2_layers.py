"""Layers of programs: which ones a topology makes, in which order, and under which names."""

import inspect

import numpy as np
import pytest
from each import each

import paddle.v2 as paddle
from paddle.v2.config_base import Layer
from paddle_base.runtime.errors import ConfigError
from trainer.v2.python2_dict import iteration_order

layer, data_type = paddle.layer, paddle.data_type


def words(name="word"):
    return layer.data(name=name, type=data_type.integer_value_sequence(10))


def made(*outputs, extra=None):
    """Return the names of the layers that a topology makes, in order."""
    return [one.name for one in paddle.topology.Topology(list(outputs), extra).proto().layers]


@each(
    ("names", "order"),
    [
        ("input label", "input label"),
        ("input label weight", "input weight label"),
        ("weights vectors", "vectors weights"),
        ("left right label", "right label left"),
        ("left right label weight", "right label weight left"),
        ("encoded_sequence encoded_proj decoder_state", "encoded_proj encoded_sequence decoder_state"),
        ("img filter", "filter img"),
        ("a b c d e f g h", "a c b e d g f h"),
        ("", ""),
    ],
)
def test_arguments_have_the_order_of_a_dict_of_python_2(names, order):
    """The first seven orders are those of golden/v2/README.md; that of eight letters is CPython 2.7.18's."""
    assert iteration_order(names.split()) == order.split()


def test_a_topology_makes_what_its_outputs_need_from_the_outputs_to_the_data():
    x, y = (layer.data(name=name, type=data_type.dense_vector(4)) for name in "xy")
    right = layer.fc(input=y, size=3)
    layer.fc(input=right, size=7)
    left = layer.fc(input=x, size=3)
    both = layer.fc(input=[left, right], size=2)
    assert made(both) == ["x", "__fc_layer_2__", "y", "__fc_layer_0__", "__fc_layer_3__"]
    assert made(right, extra=left) == ["y", "__fc_layer_0__", "x", "__fc_layer_2__"]


def test_extra_layers_are_no_outputs_and_the_lists_of_the_program_stay():
    x = layer.data(name="x", type=data_type.dense_vector(4))
    outputs, extra = [layer.fc(input=x, size=3)], [layer.fc(input=x, size=2)]
    topology = paddle.topology.Topology(outputs, extra_layers=extra)
    assert list(topology.proto().output_layer_names) == ["__fc_layer_0__"]
    assert len(outputs) == len(extra) == 1


def test_a_network_deeper_than_the_stack_of_python_is_made():
    top = layer.data(name="x", type=data_type.dense_vector(2))
    for _ in range(1500):
        top = layer.addto(input=top)
    assert len(made(top)) == 1501


def test_names_count_again_after_a_topology_and_never_meet_in_one():
    """v0.10 lost the second of two layers of one name, without a word."""
    x = layer.data(name="x", type=data_type.dense_vector(4))
    first = layer.fc(input=x, size=3)
    paddle.parameters.create(first)
    second = layer.fc(input=first, size=2)
    assert second.name == "__fc_layer_0__"
    assert made(second) == ["x", "__fc_layer_0__", "__fc_layer_1__"]
    assert second.name == "__fc_layer_1__" and made(second) == ["x", "__fc_layer_0__", "__fc_layer_1__"]


def test_a_network_of_layers_has_the_same_names_whatever_else_is_made():
    """An image network's inner layers count by their own prefixes, so names depended on the other networks."""
    image = layer.data(name="image", type=data_type.dense_vector(64), height=8, width=8)
    groups = [
        paddle.networks.img_conv_group(
            input=image, num_channels=1, conv_num_filter=[2], pool_size=2, conv_act=paddle.activation.Relu()
        )
        for _ in range(2)
    ]
    assert made(*groups) == ["image", "__conv_0__", "__pool_0__", "__conv_1__", "__pool_1__"]
    assert made(groups[1]) == ["image", "__conv_1__", "__pool_1__"]


def test_a_cell_that_runs_again_declares_its_data_again():
    """In v0.11 a name could be used once in a process."""
    assert made(
        layer.concat(input=[layer.embedding(input=words(), size=3), layer.embedding(input=words(), size=3)])
    ) == [
        "word",
        "__embedding_layer_0__",
        "__embedding_layer_1__",
        "__concat_layer_0__",
    ]
    with pytest.raises(
        ConfigError, match=r"data\(name='x'\) has the type .*dense_vector\(3\) here, and .*sequence\(3\)"
    ):
        made(
            layer.fc(input=layer.data(name="x", type=data_type.dense_vector_sequence(3)), size=1),
            layer.fc(input=layer.data(name="x", type=data_type.dense_vector(3)), size=1),
        )


@each(
    ("call", "complaint"),
    [
        (lambda: layer.fc(inptu=1, size=2), "did you mean 'input'"),
        (lambda: paddle.optimizer.Momentum(learning_rat=1), "did you mean 'learning_rate'"),
        (lambda: layer.fc(), "missing a required argument"),
        (lambda: layer.fully, "paddle.v2.layer has no 'fully'"),
        (lambda: layer.classification_costs, "did you mean .classification_cost."),
        (lambda: layer.memory(name="m", size=2), "only inside of the step function"),
        (lambda: layer.recurrent_group(step=3, input=words()), "step is 3"),
        (lambda: layer.recurrent_group(step=lambda x: 3, input=words()), "the step function returned 3"),
        (lambda: layer.StaticInput(3), "it must be a layer"),
        (lambda: layer.data(name="x", type=3), "must be an input type"),
        (lambda: paddle.topology.Topology(3), "layer should have type paddle.v2.config_base.Layer"),
        (lambda: paddle.topology.Topology(words()).get_layer("x"), "No such layer x"),
        (lambda: words() + "x", "only layers and numbers"),
    ],
)
def test_wrong_use_is_said_at_the_call(call, complaint):
    with pytest.raises((ConfigError, AttributeError, TypeError, ValueError), match=complaint):
        call()


def test_mixed_takes_terms_as_an_argument_and_in_a_block():
    x = layer.data(name="x", type=data_type.dense_vector(4))
    terms = [layer.full_matrix_projection(input=x), layer.identity_projection(input=x)]
    with layer.mixed(size=4) as block:
        for term in terms:
            block += term
    given = layer.mixed(size=4, input=terms)
    protos = paddle.topology.Topology([block, given]).proto().layers
    assert [len(one.inputs) for one in protos] == [0, 2, 2]
    assert isinstance(given + given, Layer)


def test_operators_and_functions_of_layers_know_their_sizes():
    x = layer.data(name="x", type=data_type.dense_vector(4))
    one = layer.data(name="one", type=data_type.dense_vector(1))
    result = paddle.op.softmax(paddle.op.exp(2 - x * 3 + 1)) * one + one - x
    assert result.size == 4 and one.size == 1
    assert "slope_intercept" in {each.type for each in paddle.topology.Topology(result).proto().layers}


def test_a_subtraction_subtracts():
    """v0.10 and v0.11 added the number."""
    x = layer.data(name="x", type=data_type.dense_vector(1))
    values = paddle.infer(output_layer=x - 2, parameters=paddle.parameters.create(x - 2), input=[([5.0],)])
    np.testing.assert_array_equal(values, [[3]])


def test_evaluators_and_print_layers_come_with_the_layers_that_they_read():
    x = layer.data(name="x", type=data_type.dense_vector(4))
    predict = layer.fc(input=x, size=2, act=paddle.activation.Softmax())
    label = layer.data(name="label", type=data_type.integer_value(2))
    paddle.evaluator.auc(input=predict, label=label, name="area")
    paddle.evaluator.sum(input=predict)
    layer.print(input=predict)
    cost = layer.classification_cost(input=predict, label=label, evaluator=paddle.evaluator.precision_recall)
    alone, whole = (paddle.topology.Topology(one).proto() for one in (predict, cost))
    assert [one.name for one in alone.evaluators] == ["__sum_evaluator_0__"]
    assert [one.type for one in alone.layers] == ["data", "fc", "print"]
    assert [one.name for one in whole.evaluators] == ["__sum_evaluator_0__", "area", "precision_recall_evaluator"]


def test_a_cell_that_runs_again_replaces_its_evaluator():
    predict = layer.fc(input=layer.data(name="x", type=data_type.dense_vector(4)), size=2)
    for _ in range(2):
        paddle.evaluator.sum(input=predict)
    assert len(paddle.topology.Topology(predict).proto().evaluators) == 1


def test_the_latest_layer_of_a_name_is_found():
    first, second = (layer.data(name="x", type=data_type.dense_vector(4)) for _ in range(2))
    assert layer.get_layer("x") is second is not first and layer.get_layer("y") is None


def test_a_topology_logs_each_warning_once_and_no_lines_of_the_config_language(capfd):
    image = layer.data(name="image", type=data_type.dense_vector(4), height=2, width=2)
    attr = paddle.attr.Param(name="a static one", is_static=True, initial_mean=3)
    for _ in range(2):
        conv = layer.img_conv(input=image, num_channels=1, num_filters=1, filter_size=1, param_attr=attr)
        paddle.topology.Topology(conv)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and "parameter a static one is static" in lines[0]


def test_an_error_of_a_topology_names_the_line_that_called_the_layer():
    """The layers are made when a topology needs them, and the traceback ends there."""
    x = layer.data(name="x", type=data_type.dense_vector(4))
    here = inspect.currentframe()
    wrong, line = layer.addto(input=[x, layer.fc(input=x, size=3)]), here.f_lineno
    with pytest.raises(ConfigError, match=rf"its size must be 4.*; called at test_v2_layers.py:{line}$"):
        made(layer.fc(input=wrong, size=2))
    word = words()
    group = layer.recurrent_group(step=lambda frame: layer.addto(input=[frame, layer.fc(frame, size=3)]), input=word)
    with pytest.raises(ConfigError, match=r"size must be 10.*called at test_v2_layers.py:\d+$"):
        made(group)


def test_import_of_all_names_leaves_print():
    # the layer `print` of v0.10 took the place of Python's function, and of the print statement under `paddle run`
    names = {}
    exec("from paddle.v2.layer import *", names)
    assert "print" not in names and names["fc"] is layer.fc
    assert layer.print is not print

"""inputs() and outputs(): the order of slots, and the log lines that tell it (specification 5)."""

import re

import pytest

from paddle_base.runtime.errors import ConfigError

STAMP = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d\d\d"
NETWORK = """
word, label = data_layer('word', 3), data_layer('label', 2)
p = fc_layer(word, 2, act=SoftmaxActivation())
cost = classification_cost(p, label)
"""


def test_the_two_lines_are_written_as_the_legacy_wrote_them(parse_text, capsys):
    parse_text(NETWORK + "outputs(cost)")
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"\[INFO {STAMP} networks.py:1482\] The input order is \[word, label\]", lines[0])
    assert re.fullmatch(rf"\[INFO {STAMP} networks.py:1488\] The output order is \[__cost_0__\]", lines[1])
    assert len(lines) == 2


def test_several_outputs_are_warned_of(parse_text, capsys):
    config = parse_text(NETWORK + "outputs([maxid_layer(p), p])")
    lines = capsys.readouterr().err.splitlines()
    warning = (
        "`outputs` routine try to calculate network's inputs and outputs order. It might not work well."
        "Please see follow log carefully."
    )
    assert re.fullmatch(rf"\[WARNING {STAMP} networks.py:1454\] {re.escape(warning)}", lines[0])
    assert lines[1].endswith("The input order is [word]")
    assert lines[2].endswith("The output order is [__maxid_layer_0__, __fc_layer_0__]")
    assert list(config.model_config.input_layer_names) == ["word"]


SEVERAL = """
x, y = data_layer('x', 2), data_layer('y', 2)
first = mse_cost(fc_layer(x, 2), y, name='first')
second = cross_entropy(fc_layer(first, 2, act=SoftmaxActivation()), y, name='second')
p = fc_layer([second, x], 2, act=SoftmaxActivation(), name='p')
third = classification_cost(p, y, name='third')
"""
DATA = "define_py_data_sources2(None, 'test.list', 'm', 'process')\n"


@pytest.mark.parametrize(
    "named, kept",
    [
        ("third, p", ["first", "third"]),
        ("p, third", ["first", "third"]),
        ("second", ["first"]),
        ("third", ["first", "third"]),
        ("[x, y]", ["x", "y"]),
        ("cross_entropy(fc_layer(x, 2, act=SoftmaxActivation()), y, name='c'), x", ["c", "x"]),
    ],
)
def test_the_outputs_of_a_job_are_the_layers_of_type_cost_of_the_walk(parse_text, capsys, named, kept):
    """classification_cost and mse_cost have this type in v0.10, cross_entropy has not. The log tells the same names."""
    for text in (DATA + SEVERAL + f"outputs({named})", SEVERAL + f"outputs({named})\n" + DATA):
        model = parse_text(text).model_config
        assert list(model.output_layer_names) == list(model.sub_models[0].output_layer_names) == kept
        assert f"The output order is [{', '.join(kept)}]" in capsys.readouterr().err.splitlines()[-1]


def test_outputs_without_data_are_those_that_are_named(parse_text):
    assert list(parse_text(SEVERAL + "outputs(p, third)").model_config.output_layer_names) == ["p", "third"]


def test_with_inputs_set_outputs_only_appends_and_says_nothing(parse_text, capsys):
    config = parse_text(NETWORK + "inputs(label, word)\noutputs(cost)\noutputs(p)")
    assert capsys.readouterr().err == ""
    assert list(config.model_config.input_layer_names) == ["label", "word"]
    assert list(config.model_config.output_layer_names) == ["__cost_0__", "__fc_layer_0__"]
    root = config.model_config.sub_models[0]
    assert list(root.input_layer_names) == ["label", "word"]
    assert list(root.output_layer_names) == ["__cost_0__", "__fc_layer_0__"]


def test_the_input_order_is_that_of_a_walk_and_not_of_definition(parse_text):
    config = parse_text("""
c, b, a = data_layer('c', 1), data_layer('b', 1), data_layer('a', 1)
left = fc_layer([a, b], 1)
outputs(fc_layer([left, fc_layer([b, c], 1)], 1))""")
    assert list(config.model_config.input_layer_names) == ["a", "b", "c"]


def test_a_deep_network_of_shared_parents_is_walked_once(parse_text):
    config = parse_text("""
x = data_layer('x', 1)
for _ in range(3000):
    x = addto_layer([x, x])
outputs(x)""")
    assert list(config.model_config.input_layer_names) == ["x"]


def test_an_id_input_of_a_printer_is_an_input(parse_text):
    config = parse_text(NETWORK + "seqtext_printer_evaluator(p, 'r.txt', id_input=label)\noutputs(p)")
    assert list(config.model_config.input_layer_names) == ["word", "label"]


def test_layers_may_be_named_before_they_exist(parse_text):
    config = parse_text("""
Inputs('word'); Outputs('__fc_layer_0__')
assert HasInputsSet()
fc_layer(data_layer('word', 1), 1)""")
    assert list(config.model_config.input_layer_names) == ["word"]
    assert list(config.model_config.output_layer_names) == ["__fc_layer_0__"]


@pytest.mark.parametrize(
    "call, message",
    [
        ("Inputs('nosuch')", "config.py: the input layer 'nosuch' does not exist"),
        ("Inputs('__fc_layer_0__')", "must be a data layer; it is of type fc"),
        ("Outputs('nosuch')", "the output layer 'nosuch' does not exist"),
        ("outputs('cost')", "it must be a layer"),
        ("outputs([])", r"outputs\(\): layers is \[\]; it must have at least one layer"),
    ],
    ids=str,
)
def test_impossible_inputs_and_outputs_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=message):
        parse_text(NETWORK + call)

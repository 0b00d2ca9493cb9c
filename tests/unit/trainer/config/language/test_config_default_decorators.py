"""Decorators of the legacy's helpers on functions of a user's script."""

LAYERS = """
from paddle.trainer_config_helpers.default_decorators import *

@wrap_name_default('mine')
@wrap_param_attr_default()
@wrap_bias_attr_default(has_bias=%s)
@wrap_act_default(act=ReluActivation())
def my_layer(input, name=None, param_attr=None, bias_attr=None, act=None):
    assert isinstance(param_attr, ParamAttr)
    return fc_layer(input, 2, act, name, param_attr, bias_attr or False)

@default_decorators.wrap_name_default()
@utils.deprecated('my_layer')
def other(input, name=None):
    return fc_layer(input, 2, name=name)

x = data_layer('x', 3)
"""


def layers(config):
    return [(layer.name, layer.active_type, layer.bias_parameter_name) for layer in config.model_config.layers][1:]


def test_functions_of_a_script_have_the_defaults_of_the_language(parse_text, capsys):
    config = parse_text(LAYERS % True + "my_layer(x); my_layer(x, 'a', act=TanhActivation()); my_layer(x); other(x)")
    assert layers(config) == [
        ("__mine_0__", "relu", "___mine_0__.wbias"),
        ("a", "tanh", "_a.wbias"),
        ("__mine_1__", "relu", "___mine_1__.wbias"),
        ("__other_0__", "tanh", "___other_0__.wbias"),
    ]
    assert "the interface other is deprecated, please use my_layer instead" in capsys.readouterr().err


def test_a_bias_that_is_off_by_default_is_there_for_true(parse_text):
    config = parse_text(LAYERS % False + "my_layer(x); my_layer(x, bias_attr=True); my_layer(x, bias_attr=False)")
    assert [bias for _, _, bias in layers(config)] == ["", "___mine_1__.wbias", ""]
    assert [parameter.initial_std for parameter in config.model_config.parameters if "bias" in parameter.name] == [0]

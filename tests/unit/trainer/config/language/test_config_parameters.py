"""Parameters: what ParamAttr, the defaults of settings() and sharing by name make of them (specification 4)."""

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError
from trainer.config import to_text

INPUT = "x = data_layer('x', 16)\n"


def weight(config):
    return config.model_config.parameters[0]


def initialisation(parameter):
    return parameter.initial_strategy, parameter.initial_mean, parameter.initial_std, parameter.initial_smart


@pytest.mark.parametrize(
    "attr, expected",
    [
        ("ParamAttr()", (0, 0.0, 0.25, True)),
        ("ParamAttr(initial_std=0.5)", (0, 0.0, 0.5, False)),
        ("ParamAttr(initial_mean=2)", (0, 2.0, 0.01, False)),
        ("ParamAttr(initial_mean=2.0, initial_std=0)", (0, 2.0, 0.0, False)),
        ("ParamAttr(initial_max=3.0, initial_min=-1.0)", (1, 1.0, 2.0, False)),
        # two integers are divided as integers, as in Python 2
        ("ParamAttr(initial_max=2, initial_min=-1)", (1, 0.0, 1.0, False)),
    ],
    ids=str,
)
def test_initialisation_follows_from_what_is_given(parse_text, attr, expected):
    assert initialisation(weight(parse_text(f"{INPUT}fc_layer(x, 4, param_attr={attr})"))) == expected


def test_a_named_bias_attr_without_initial_values_is_drawn_with_deviation_one(parse_text):
    config = parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(name='w'), bias_attr=ParamAttr(name='b'))")
    assert [parameter.name for parameter in config.model_config.parameters] == ["w", "b"]
    assert initialisation(config.model_config.parameters[1]) == (0, 0.0, 1.0, True)


@pytest.mark.parametrize("bias", ["None", "True", "1"])
def test_a_bias_is_zero_where_nothing_else_is_said(parse_text, bias):
    config = parse_text(f"{INPUT}fc_layer(x, 4, bias_attr={bias})")
    assert config.model_config.layers[1].bias_parameter_name == "___fc_layer_0__.wbias"
    assert list(config.model_config.parameters[1].dims) == [1, 4]
    assert initialisation(config.model_config.parameters[1]) == (0, 0.0, 0.0, False)


def test_no_bias_is_no_parameter(parse_text):
    config = parse_text(f"{INPUT}fc_layer(x, 4, bias_attr=False)")
    assert len(config.model_config.parameters) == 1
    assert not config.model_config.layers[1].HasField("bias_parameter_name")


def test_rates_are_written_and_those_of_a_static_parameter_are_not(parse_text):
    rates = "learning_rate=2, momentum=0.5, l2_rate=0., gradient_clipping_threshold=3"
    given = weight(parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr({rates}))"))
    assert (given.learning_rate, given.momentum, given.gradient_clipping_threshold) == (2.0, 0.5, 3.0)
    assert given.HasField("decay_rate") and given.decay_rate == 0
    static = weight(parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(is_static=True, {rates}))"))
    assert static.is_static and static.gradient_clipping_threshold == 3.0
    assert not any(static.HasField(rate) for rate in ("learning_rate", "momentum", "decay_rate"))


def test_settings_are_defaults_of_the_parameters_that_are_made_afterwards(parse_text):
    config = parse_text(f"""{INPUT}
early = fc_layer(x, 4, bias_attr=False)
settings(1, learning_method=MomentumOptimizer(0.9), regularization=L2Regularization(0.1), gradient_clipping_threshold=5)
late = fc_layer(x, 4, bias_attr=False)
own = fc_layer(x, 4, bias_attr=False, param_attr=ParamAttr(l2_rate=0., momentum=0.))""")
    early, late, own = config.model_config.parameters
    assert not early.HasField("momentum") and not early.HasField("decay_rate")
    assert (late.momentum, late.decay_rate, late.gradient_clipping_threshold) == (0.9, 0.1, 5.0)
    assert (own.momentum, own.decay_rate, own.gradient_clipping_threshold) == (0.0, 0.0, 5.0)


def test_the_default_functions_change_what_a_silent_attribute_gets(parse_text):
    config = parse_text(f"""{INPUT}
default_initial_std(0.3); default_initial_mean(0.2); default_momentum(0.7); default_decay_rate(1e-3); default_device(0)
fc_layer(x, 4, bias_attr=False, param_attr=ParamAttr(initial_mean=1.0))""")
    parameter = weight(config)
    assert (parameter.initial_mean, parameter.initial_std) == (1.0, 0.3)
    assert (parameter.momentum, parameter.decay_rate, parameter.device) == (0.7, 0.001, 0)
    assert config.model_config.layers[1].device == 0


def test_a_parameter_is_shared_by_name_and_keeps_its_first_attributes(parse_text):
    config = parse_text(f"""{INPUT}
fc_layer(x, 4, bias_attr=False, param_attr=ParamAttr(name='w', initial_std=0.5))
fc_layer(x, 4, bias_attr=False, param_attr=ParamAttr(name='w'))""")
    assert len(config.model_config.parameters) == 1
    assert weight(config).initial_std == 0.5
    assert config.model_config.layers[2].inputs[0].input_parameter_name == "w"


def test_sharing_needs_the_same_shape(parse_text):
    message = r"'w' has size 64 and dims \[16, 4\]; here it would have size 64 and dims \[4, 16\]"
    with pytest.raises(ConfigError, match=message):
        parse_text(f"""{INPUT}
y = fc_layer(x, 4, param_attr=ParamAttr(name='w'))
fc_layer(y, 16, param_attr=ParamAttr(name='w'))""")


def test_a_list_of_attributes_is_one_per_input(parse_text):
    config = parse_text("""
x, y = data_layer('x', 16), data_layer('y', 9)
fc_layer([x, y], 2, bias_attr=False, param_attr=[ParamAttr(name='wx'), ParamAttr(initial_std=0.5)])""")
    assert [list(parameter.dims) for parameter in config.model_config.parameters] == [[16, 2], [9, 2]]
    assert [item.input_parameter_name for item in config.model_config.layers[2].inputs] == ["wx", "___fc_layer_0__.w1"]


def test_what_map_gave_is_a_list_of_attributes(parse_text):
    attrs = "map(lambda name: ParamAttr(name=name), 'ab')"
    config = parse_text(f"{INPUT}fc_layer([x, x], 2, bias_attr=False, param_attr={attrs})")
    assert [parameter.name for parameter in config.model_config.parameters] == ["a", "b"]


def test_sparse_update_asks_for_the_remote_updater_too(parse_text):
    config = parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(sparse_update=True))")
    assert weight(config).sparse_update and weight(config).sparse_remote_update
    assert config.opt_config.use_sparse_remote_updater


def test_hooks_are_written(parse_text):
    config = parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(update_hooks=HookAttr('pruning', 0.4)))")
    assert 'update_hooks {\n      type: "pruning"\n      sparsity_ratio: 0.4' in to_text(config)


def test_an_initializer_is_not_in_the_message_and_said_to_be_without_effect(parse_text, capfd):
    config = parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(initializer=len))")
    assert config == parse_text(f"{INPUT}fc_layer(x, 4)")
    assert "WARNING" in capfd.readouterr().err


def test_a_rate_that_is_no_number_is_said_to_be_without_effect(parse_text, capfd):
    """It was ignored in silence, as v0.10 ignores it."""
    config = parse_text(f"{INPUT}fc_layer(x, 4, param_attr=ParamAttr(learning_rate='0.1', l2_rate=True, momentum=0.5))")
    assert weight(config).learning_rate == 1 and not weight(config).decay_rate and weight(config).momentum == 0.5
    told = capfd.readouterr().err
    assert "learning_rate of ParamAttr is '0.1', which is no number, so it has no effect, as in v0.10" in told
    assert "l2_rate of ParamAttr is True, which is no number" in told and "momentum" not in told


@each(
    "attr, message",
    [
        ("ParamAttr(initial_std='a')", "arguments must be numbers"),
        ("ParamAttr(initial_max=1.0)", "arguments must be numbers"),
        ("ParamAttr(initial_max=1.0, initial_min=1.0)", "must be less than"),
        ("ParamAttr(momentum=0.5, l1_rate=0.1)", "cannot both be non-zero"),
        ("ParamAttr(is_static=True, sparse_update=True)", "cannot be both"),
        ("ParamAttr(update_hooks='pruning')", "must be a HookAttr"),
        ("[ParamAttr(), ParamAttr()]", "2 items for 1 inputs"),
        ("'w'", "must be a ParamAttr"),
    ],
    ids=str,
)
def test_impossible_attributes_are_refused(parse_text, attr, message):
    with pytest.raises(ConfigError, match=message):
        parse_text(f"{INPUT}fc_layer(x, 4, param_attr={attr})")

"""Defaults that v0.10 had and the last version has not: in a job, that is a config with data sources, they hold."""

import pytest
from config_messages import layers_of, parameter_of

JOB = "\ndefine_py_data_sources2('a.list', None, module='p', obj='process')\n"
HEAD = """
settings(batch_size=1, learning_rate=1)
x = data_layer('x', size=8)
label = data_layer('label', size=4)
"""
STEP = """
def step(now):
    state = memory(name='state', size=2)
    hidden = lstm_step_layer(now, state=state, size=2, name='out'{})
    get_output_layer(hidden, 'state', name='state')
    return hidden
outputs(recurrent_group(step=step, input=x))
"""


@pytest.mark.parametrize(("further", "expected"), [("", "sigmoid"), (", state_act=TanhActivation()", "tanh")])
@pytest.mark.parametrize("order", ["sources first", "sources last"])
def test_a_step_s_state_goes_through_a_sigmoid_in_a_job(parse_text, further, expected, order):
    """Recorded: case lstm_step_defaults."""
    text = HEAD + STEP.format(further)
    config = parse_text(JOB + text if order == "sources first" else text + JOB)
    assert [one.active_state_type for one in layers_of(config, "lstm_step")] == [expected]
    assert [one.active_state_type for one in layers_of(parse_text(text), "lstm_step")] == ["tanh"]


def test_lstmemory_group_has_the_step_s_default(parse_text):
    """Recorded: case group_lstm_defaults."""
    text = HEAD + "outputs(lstmemory_group(x, size=2))"
    assert [one.active_state_type for one in layers_of(parse_text(JOB + text), "lstm_step")] == ["sigmoid"]
    assert [one.active_state_type for one in layers_of(parse_text(text), "lstm_step")] == ["tanh"]


def test_nce_weights_have_the_plain_deviation_in_a_job(parse_text):
    """Recorded: case cost_nce."""
    text = HEAD + "outputs(nce_layer(x, label, num_classes=4, name='n'{}))"
    plain = parameter_of(parse_text(JOB + text.format("")), "_n.w0")
    assert (plain.initial_std, plain.initial_mean, plain.initial_smart) == (0.01, 0, False)
    assert parameter_of(parse_text(JOB + text.format(", param_attr=ParamAttr(l2_rate=1)")), "_n.w0").initial_smart
    assert parameter_of(parse_text(text.format("")), "_n.w0").initial_smart


def test_a_static_parameter_has_the_plain_deviation_in_a_job(parse_text, capsys):
    """Its own first values counted; v0.10 did not read them (specification trainer.md, 5.2)."""
    text = HEAD + "outputs(fc_layer(x, 2, name='f', param_attr=ParamAttr(is_static=True{})))"
    plain = parameter_of(parse_text(JOB + text.format("")), "_f.w0")
    assert (plain.initial_std, plain.initial_smart, plain.is_static) == (0.01, False, True)
    assert "static" not in capsys.readouterr().err
    given = text.format(", initial_max=3.0, initial_min=2.0")
    ignored = parameter_of(parse_text(JOB + given), "_f.w0")
    assert (ignored.initial_std, ignored.initial_mean, ignored.initial_strategy) == (0.01, 0, 0)
    assert "parameter _f.w0 is static: its initial_* values have no effect" in capsys.readouterr().err
    set_before = parameter_of(parse_text(JOB + "default_initial_std(0.5)\n" + given), "_f.w0")
    assert set_before.initial_std == 0.5
    network = parameter_of(parse_text(given), "_f.w0")
    assert (network.initial_std, network.initial_mean, network.initial_strategy) == (0.5, 2.5, 1)
    assert parameter_of(parse_text(text.format("")), "_f.w0").initial_smart


def test_the_parameter_of_data_norm_is_static_whatever_the_config_says(parse_text):
    """It had to be declared so, and the start ended with 78. Recorded: case data_norm_z_score."""
    config = parse_text(HEAD + "Layer(name='n', type='data_norm', inputs=['x'], data_norm_strategy='min-max')")
    assert parameter_of(config, "_n.w0").is_static

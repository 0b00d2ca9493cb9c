"""settings(), optimisers and the raw Settings() (specification 10 and 16)."""

import pytest
from each import each

from paddle_base.runtime.errors import ConfigError


@each(
    "optimizer, fields",
    [
        ("MomentumOptimizer(0.9)", {"learning_method": "momentum"}),
        ("MomentumOptimizer(0.9, sparse=True)", {"learning_method": "sparse_momentum"}),
        (
            "AdamOptimizer(0.8, 0.99, 1e-6)",
            {"learning_method": "adam", "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-6},
        ),
        ("AdamaxOptimizer(0.8, 0.99)", {"learning_method": "adamax", "adam_beta1": 0.8, "adam_beta2": 0.99}),
        ("AdaGradOptimizer()", {"learning_method": "adagrad"}),
        (
            "DecayedAdaGradOptimizer(0.9, 1e-5)",
            {"learning_method": "decayed_adagrad", "ada_rou": 0.9, "ada_epsilon": 1e-5},
        ),
        ("AdaDeltaOptimizer(0.9, 1e-5)", {"learning_method": "adadelta", "ada_rou": 0.9, "ada_epsilon": 1e-5}),
        ("RMSPropOptimizer(0.9, 1e-5)", {"learning_method": "rmsprop", "ada_rou": 0.9, "ada_epsilon": 1e-5}),
    ],
    ids=lambda value: value.partition("(")[0] if isinstance(value, str) else "",
)
def test_an_optimiser_writes_its_fields(parse_text, optimizer, fields):
    config = parse_text(f"settings(batch_size=7, learning_rate=0.5, learning_method={optimizer})").opt_config
    assert (config.batch_size, config.learning_rate, config.algorithm) == (7, 0.5, "sgd")
    assert {name: getattr(config, name) for name in fields} == fields


def test_settings_write_schedule_averaging_and_asynchrony(parse_text):
    average = "ModelAverage(0.5, 100, True)"
    config = parse_text(
        f"settings(10, 0.1, 0.2, 0.3, 'manual', '1:1.0', 2.5, is_async=True, model_average={average})"
    ).opt_config
    assert (config.learning_rate_decay_a, config.learning_rate_decay_b) == (0.2, 0.3)
    assert (config.learning_rate_schedule, config.learning_rate_args) == ("manual", "1:1.0")
    assert (config.async_lagged_grad_discard_ratio, config.algorithm) == (2.5, "async_sgd")
    assert (config.average_window, config.max_average_window, config.do_average_in_cpu) == (0.5, 100, True)


def test_without_settings_the_defaults_are_those_of_the_dictionary(parse_text):
    config = parse_text("data_layer('x', 1)")
    assert (config.opt_config.algorithm, config.opt_config.learning_rate) == ("async_sgd", 1.0)
    assert not config.opt_config.HasField("batch_size") and not config.opt_config.HasField("max_average_window")
    assert (config.save_dir, config.start_pass) == ("./output/model", 0)


def test_the_clipping_threshold_is_a_setting_and_the_default_of_parameters(parse_text):
    config = parse_text("settings(1, gradient_clipping_threshold=25)\nfc_layer(data_layer('x', 1), 1)")
    assert config.opt_config.gradient_clipping_threshold == 25.0
    assert [parameter.gradient_clipping_threshold for parameter in config.model_config.parameters] == [25.0, 25.0]


def test_raw_settings_set_any_entry(parse_text):
    config = parse_text("Settings(batch_size=3, algorithm='sgd', save_dir='out', num_batches_per_send_parameter=4)")
    assert (config.opt_config.batch_size, config.opt_config.num_batches_per_send_parameter) == (3, 4)
    assert config.save_dir == "out"


@pytest.mark.parametrize(
    "call, message",
    [
        ("settings(0)", r"settings\(\): batch_size is 0"),
        ("settings('a')", "batch_size is 'a'; it must be an integer"),
        ("settings()", "missing a required argument: 'batch_size'"),
        ("settings(1, learning_rate='a')", "learning_rate is 'a'; it must be a number"),
        ("settings(1, learning_method='adam')", "derived from Optimizer"),
        ("settings(1, learning_method=AdaptiveOptimizer())", "name 'AdaptiveOptimizer' is not defined"),
        ("settings(1, regularization=0.5)", "derived from BaseRegularization"),
        ("settings(1, model_average=0.5)", "ModelAverage"),
        ("settings(1, regularisation=L2Regularization(1))", "unexpected keyword argument 'regularisation'"),
        ("L2Regularization('a')", "L2Regularization: rate is 'a'"),
        ("Settings(batch=1)", "there is no setting 'batch'"),
        ("Settings(batch_size='a')", "batch_size is 'a'"),
        ("learning_rate(0.1)", r"learning_rate\(\): this function is obsolete; use Settings\(learning_rate=...\)"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(parse_text, call, message):
    with pytest.raises(ConfigError, match=f"config.py line 2: .*{message}"):
        parse_text(call)


def test_averaging_can_be_said_as_in_v0_9(parse_text):
    config = parse_text("settings(1, average_window=0.5, max_average_window=100, do_average_in_cpu=True)").opt_config
    assert (config.average_window, config.max_average_window, config.do_average_in_cpu) == (0.5, 100, True)
    with pytest.raises(ConfigError, match="average_window is set twice"):
        parse_text("settings(1, average_window=0.5, model_average=ModelAverage(0.5))")

"""A config with everything that a checkpoint must contain: momentum, a schedule, dropout and a shuffling provider.

Config args: mode (sync, async, average), batch_size, provider (module of the training data).
"""

from paddle.trainer_config_helpers import *

mode = get_config_arg("mode", str, "sync")
batch_size = get_config_arg("batch_size", int, 4)
modules = (get_config_arg("provider", str, "digits_provider"), "digits_provider")

define_py_data_sources2(train_list="data/train.list", test_list="data/test.list", module=modules, obj="process")

if mode == "average":  # in v0.10, only the low-level function has these settings
    Settings(num_batches_per_send_parameter=4, center_parameter_update_method="average")

settings(
    batch_size=batch_size,
    # no momentum in asynchronous training, so that the last cost depends little on the order of the trainers
    learning_rate={"sync": 0.003, "async": 0.01, "average": 0.02}[mode],
    learning_rate_decay_a=0.0005,
    learning_rate_decay_b=0.75,
    learning_rate_schedule="poly",
    learning_method=MomentumOptimizer(momentum=0.9 if mode == "sync" else 0.0),
    is_async=mode != "sync",
)

pixel = data_layer(name="pixel", size=8 * 8)
hidden = fc_layer(input=pixel, size=64, act=TanhActivation(), layer_attr=ExtraLayerAttribute(drop_rate=0.1))
digit = fc_layer(input=hidden, size=10, act=SoftmaxActivation())
label = data_layer(name="label", size=10)

outputs(classification_cost(input=digit, label=label))

"""The config of the trials, for the digits or for the lines of rt-polarity.

Config args: mode (sync, async), data (digits, texts), pace (seconds that the provider takes for a sample).
"""

from paddle.trainer_config_helpers import *

mode = get_config_arg("mode", str, "async")
data = get_config_arg("data", str, "digits")
pace = get_config_arg("pace", float, 0.0)

define_py_data_sources2(
    train_list="data/train.list",
    test_list="data/test.list",
    module=("tasks_provider", "tasks_provider"),
    obj=(f"train_{data}", f"test_{data}"),
    args={"pace": pace, "dictionary": "data/dict.txt"},
)

# no momentum and decreasing steps, so that the last values depend little on the order of the trainers
settings(
    batch_size=20,
    learning_rate=0.01,
    learning_rate_decay_a=0.001,
    learning_rate_decay_b=0.75,
    learning_rate_schedule="poly",
    learning_method=MomentumOptimizer(momentum=0.0),
    is_async=mode == "async",
)

if data == "digits":
    seen = data_layer(name="seen", size=8 * 8)
    hidden = fc_layer(input=seen, size=64, act=TanhActivation())
    classes = 10
else:
    with open("data/dict.txt", encoding="utf-8") as words:  # noqa: PTH123 as in users' scripts
        seen = data_layer(name="seen", size=sum(1 for _ in words))
    hidden = seen
    classes = 2
output = fc_layer(input=hidden, size=classes, act=SoftmaxActivation())
label = data_layer(name="label", size=classes)

outputs(classification_cost(input=output, label=label))

"""Handwritten digits, 8x8 pixels: one hidden layer of 64 units, about 3 % test error after 10 passes on 3 trainers.

Config args: batch_size (of one trainer, default 32), hidden (units, default 64).
"""

from paddle.trainer_config_helpers import *

batch_size = get_config_arg("batch_size", int, 32)
hidden_size = get_config_arg("hidden", int, 64)

define_py_data_sources2(
    train_list="data/train.list", test_list="data/test.list", module="digits_provider", obj="process"
)

# Gradients are sums over the samples of all trainers, so a step grows with the number of trainers. The usual 0.1 is
# divided by about 96, the 3 x 32 samples of a step. Steps of three times this size are still stable, so 1 to 9 trainers
# need no other value.
settings(batch_size=batch_size, learning_rate=0.001, learning_method=MomentumOptimizer(momentum=0.9))

pixel = data_layer(name="pixel", size=8 * 8)
hidden = fc_layer(input=pixel, size=hidden_size, act=TanhActivation())
digit = fc_layer(input=hidden, size=10, act=SoftmaxActivation())
label = data_layer(name="label", size=10)

outputs(classification_cost(input=digit, label=label))

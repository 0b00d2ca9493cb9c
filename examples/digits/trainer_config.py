"""A network with one hidden layer for handwritten digits; its test error is about 3 % after 10 passes on 3 trainers.

Config args: batch_size (of one trainer, default 32), hidden (units, default 64).
"""

from paddle.trainer_config_helpers import *

batch_size = get_config_arg("batch_size", int, 32)
hidden_size = get_config_arg("hidden", int, 64)

define_py_data_sources2(
    train_list="data/train.list", test_list="data/test.list", module="digits_provider", obj="process"
)

# Gradients are sums over the samples of all trainers. A step therefore grows with the number of trainers. The rate here
# is the usual rate, 0.1, divided by about 96, the 3 x 32 samples of a step. Training is still stable with steps of
# three times this size. Therefore the rate suits 1 to 9 trainers.
settings(batch_size=batch_size, learning_rate=0.001, learning_method=MomentumOptimizer(momentum=0.9))

pixel = data_layer(name="pixel", size=8 * 8)
hidden = fc_layer(input=pixel, size=hidden_size, act=TanhActivation())
digit = fc_layer(input=hidden, size=10, act=SoftmaxActivation())
label = data_layer(name="label", size=10)

outputs(classification_cost(input=digit, label=label))

"""The tutorial's deep LSTM: eight layers, which alternately read forward and backward.

Config args: dict_file (default ./data/dict.txt), is_predict (default False: train).
"""

from text_task import classify, declare_data

from paddle.trainer_config_helpers import *

dict_file = get_config_arg("dict_file", str, "./data/dict.txt")
is_predict = get_config_arg("is_predict", bool, False)

settings(
    batch_size=1 if is_predict else 128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25,
)

DEPTH = 8

words = embedding_layer(input=declare_data(dict_file, is_predict), size=128)
hidden = mixed_layer(size=128, input=[full_matrix_projection(input=words)])
read = lstmemory(input=hidden, layer_attr=ExtraAttr(drop_rate=0.1))
for depth in range(1, DEPTH):
    hidden = fc_layer(input=[hidden, read], size=128)
    read = lstmemory(input=hidden, reverse=depth % 2 == 1, layer_attr=ExtraAttr(drop_rate=0.1))
strongest = pooling_layer(input=read, pooling_type=MaxPooling())
classify(strongest, is_predict, bias_attr=ParamAttr(initial_std=0.0, l2_rate=0.0))

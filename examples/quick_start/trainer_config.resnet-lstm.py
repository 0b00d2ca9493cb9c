"""The tutorial's residual LSTM: each layer reads the sum of the input and the output of the previous layer.

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

DEPTH = 4


def read_layer(layer):
    return simple_lstm(input=layer, size=128, lstm_cell_attr=ExtraAttr(drop_rate=0.1))


layer = embedding_layer(input=declare_data(dict_file, is_predict), size=128)
read = read_layer(layer)
for _ in range(1, DEPTH):
    layer = addto_layer(input=[layer, read])
    read = read_layer(layer)
strongest = pooling_layer(input=read, pooling_type=MaxPooling())
classify(strongest, is_predict, bias_attr=ParamAttr(initial_std=0.0, l2_rate=0.0))

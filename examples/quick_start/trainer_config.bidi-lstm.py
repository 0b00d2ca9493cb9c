"""The tutorial's bidirectional LSTM: one layer reads forward, and one backward. Their last states are concatenated.

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

words = embedding_layer(input=declare_data(dict_file, is_predict), size=128)
ends = bidirectional_lstm(input=words, size=128)
classify(dropout_layer(input=ends, dropout_rate=0.5), is_predict, bias_attr=ParamAttr(initial_std=0.0, l2_rate=0.0))

"""The tutorial's convolution: features of three successive words, and the maximum of each feature over the text.

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
features = sequence_conv_pool(input=words, context_len=3, hidden_size=512)
classify(features, is_predict)

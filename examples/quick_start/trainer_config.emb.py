"""The tutorial's word embedding: a linear classifier of the mean of the vectors of a text's words.

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
)

words = embedding_layer(input=declare_data(dict_file, is_predict), size=128)
average = pooling_layer(input=words, pooling_type=AvgPooling())
classify(average, is_predict)

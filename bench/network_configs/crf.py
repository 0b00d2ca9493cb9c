"""Tagging: embeddings of size 64 for 10,000 words, an LSTM of size 64 for each direction, and a CRF over 9 tags."""

from paddle.trainer_config_helpers import *

WORDS, SIZE, TAGS = 10000, 64, 9

define_py_data_sources2("data/train.list", None, module="provider", obj="process")
settings(batch_size=64, learning_rate=1e-3, learning_method=AdamOptimizer())

words = embedding_layer(input=data_layer("word", WORDS), size=SIZE)
forward = simple_lstm(input=words, size=SIZE)
backward = simple_lstm(input=words, size=SIZE, reverse=True)
with mixed_layer(size=TAGS, bias_attr=True) as scores:
    scores += full_matrix_projection(forward)
    scores += full_matrix_projection(backward)
outputs(crf_layer(input=scores, label=data_layer("tag", TAGS), size=TAGS))

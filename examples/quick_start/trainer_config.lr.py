"""The tutorial's logistic regression, which classifies a text by the set of its words.

Config args: dict_file (default ./data/dict.txt), is_predict (default False: train).
"""

from text_task import classify, find_test_list

from paddle.trainer_config_helpers import *

dict_file = get_config_arg("dict_file", str, "./data/dict.txt")
is_predict = get_config_arg("is_predict", bool, False)

word_dict = {}
with open(dict_file, encoding="utf-8") as lines:
    for word_id, line in enumerate(lines):
        word_dict[line.split()[0]] = word_id

define_py_data_sources2(
    train_list=None if is_predict else "data/train.list",
    test_list=find_test_list(is_predict),
    module="dataprovider_bow",
    obj="process_predict" if is_predict else "process",
    args={"dictionary": word_dict},
)

settings(
    batch_size=1 if is_predict else 128,
    learning_rate=2e-3,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25,
)

word = data_layer(name="word", size=len(word_dict))
classify(word, is_predict)

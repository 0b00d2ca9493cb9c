"""The parts that all configs for sequences of words share: dictionary, data, and the last layers of the network."""

import os

from labels import read_labels

from paddle.trainer_config_helpers import *

MEASURED = 20  # so many classes have a measure of their own


def declare_data(dict_file, is_predict):
    """Declare the data provider that reads texts as sequences, and return the data layer of the words."""
    with open(dict_file, encoding="utf-8") as lines:
        dictionary = {line.split()[0]: word_id for word_id, line in enumerate(lines)}
    define_py_data_sources2(
        train_list=None if is_predict else "data/train.list",
        test_list=find_test_list(is_predict),
        module="dataprovider_emb",
        obj="process_predict" if is_predict else "process",
        args={"dictionary": dictionary},
    )
    return data_layer(name="word", size=len(dictionary))


def find_test_list(is_predict):
    """Return the list of the texts to predict, or of the test set; None if `prepare` has made no test set."""
    if is_predict:
        return "data/pred.list"
    return "data/test.list" if os.path.exists("data/test.list") else None


def classify(features, is_predict, **attributes):
    """Add the last layers: the class and probabilities of each text for prediction, or the cost for training.

    If there are more than two classes, the log has precision and recall of each.
    """
    names = read_labels()
    probabilities = fc_layer(input=features, size=len(names), act=SoftmaxActivation(), **attributes)
    if is_predict:
        outputs([maxid_layer(probabilities), probabilities])
        return
    label = data_layer(name="label", size=len(names))
    outputs(classification_cost(input=probabilities, label=label))
    if 2 < len(names) <= MEASURED:
        for number, name in enumerate(names):
            name = "_".join(name.replace("=", "_").split())
            precision_recall_evaluator(input=probabilities, label=label, positive_label=number, name=name)

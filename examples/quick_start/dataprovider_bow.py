"""Reads text as bags of words. Lines are `label<TAB>words` in training and tests, and `words` in prediction."""

from labels import read_labels

from paddle.trainer.PyDataProvider2 import *

UNKNOWN = 0  # the id of every word that is not in the dictionary


def init_types(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = {
        "word": sparse_binary_vector(len(dictionary)),
        "label": integer_value(len(read_labels())),
    }


def init_types_predict(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = {"word": sparse_binary_vector(len(dictionary))}


def word_ids(settings, text):
    return [settings.word_dict.get(word, UNKNOWN) for word in text.split()]


@provider(init_hook=init_types, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name, encoding="utf-8") as lines:
        for line in lines:
            label, text = line.split("\t", 1)
            yield {"word": word_ids(settings, text), "label": int(label)}


@provider(init_hook=init_types_predict, should_shuffle=False)
def process_predict(settings, file_name):
    with open(file_name, encoding="utf-8") as lines:
        for line in lines:
            yield {"word": word_ids(settings, line)}

"""The tutorial's recommendation: it predicts a user's rating of a film by the cosine of two vectors of features.

The file data/meta.json, which the data job writes, defines the fields of films and users. Config args: is_predict
(default False: train).
"""

import json

from paddle.trainer_config_helpers import *

META_FILE = "data/meta.json"
WIDTH = 256

is_predict = get_config_arg("is_predict", bool, False)

settings(
    batch_size=1600,
    learning_rate=1e-3,
    learning_method=RMSPropOptimizer(),
)


def describe_field(side, field):
    """Return the features of one field, which is an id, a list of characters or words, or several choices."""
    if field["type"] == "id":
        key = data_layer(name=f"{side}_id", size=field["max"])
        return fc_layer(input=embedding_layer(input=key, size=WIDTH), size=WIDTH)
    value = data_layer(name=field["name"], size=len(field["dict"]))
    if field["type"] == "one_hot_dense":
        return fc_layer(input=fc_layer(input=value, size=WIDTH), size=WIDTH)
    vectors = embedding_layer(input=value, size=WIDTH)
    if field["seq"] == "sequence":
        return text_conv_pool(input=vectors, context_len=5, hidden_size=WIDTH)
    return fc_layer(input=vectors, size=WIDTH)


def describe(side, fields):
    """Return the features of a film or of a user: one layer that combines the features of its fields."""
    return fc_layer(input=[describe_field(side, field) for field in fields], size=WIDTH, name=f"{side}_fusion")


with open(META_FILE, encoding="utf-8") as text:
    meta = json.load(text)
film, user = (describe(side, meta[side]["__meta__"]["raw_meta"]) for side in ("movie", "user"))
similarity = cos_sim(a=film, b=user)

if is_predict:
    outputs(similarity)
else:
    outputs(square_error_cost(input=similarity, label=data_layer(name="rating", size=1)))

define_py_data_sources2(
    train_list=None if is_predict else "data/train.list",
    test_list="data/test.list",
    module="dataprovider",
    obj="process_predict" if is_predict else "process",
    args={"meta_file": META_FILE},
)

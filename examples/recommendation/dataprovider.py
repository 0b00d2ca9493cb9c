"""Reads ratings from lines `user::movie::score::time`, and adds the features of the film and user from meta.json."""

import json

from paddle.trainer.PyDataProvider2 import *

SIDES = ("movie", "user")


def type_of(field):
    if field["type"] == "id":
        return integer_value(field["max"])
    if field["type"] == "one_hot_dense":
        return dense_vector(len(field["dict"]))
    return (integer_value_sequence if field["seq"] == "sequence" else integer_value)(len(field["dict"]))


def init_types_predict(settings, meta_file, **kwargs):
    with open(meta_file, encoding="utf-8") as text:
        settings.meta = json.load(text)
    settings.input_types = {}
    for side in SIDES:
        for field in settings.meta[side]["__meta__"]["raw_meta"]:
            settings.input_types[field.get("name", f"{side}_id")] = type_of(field)


def init_types(settings, meta_file, **kwargs):
    init_types_predict(settings, meta_file)
    settings.input_types["rating"] = dense_vector(1)


def slots_of(meta, side, key):
    """Return the slots of one film or user. Ids begin at 1, and the rows of an embedding begin at 0."""
    _, *fields = meta[side]["__meta__"]["raw_meta"]
    slots = {field["name"]: value for field, value in zip(fields, meta[side][key], strict=True)}
    slots[f"{side}_id"] = int(key) - 1
    return slots


def read_ratings(meta, file_name):
    """Yield (slots of the film and the user, score) for each rating."""
    with open(file_name, encoding="utf-8") as lines:
        for line in lines:
            user, film, score, *_ = line.split("::")
            yield {**slots_of(meta, "movie", film), **slots_of(meta, "user", user)}, float(score)


@provider(init_hook=init_types, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    for slots, score in read_ratings(settings.meta, file_name):
        yield {**slots, "rating": [2 * score - 5]}  # as in the tutorial, 1 to 5 stars become -3 to 5


@provider(init_hook=init_types_predict, should_shuffle=False)
def process_predict(settings, file_name):
    for slots, _ in read_ratings(settings.meta, file_name):
        yield slots

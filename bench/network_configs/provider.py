"""The provider of the data that bench/networks.py has drawn: a file of arrays with every slot of slots.json."""

import json

import numpy as np

from paddle.trainer.PyDataProvider2 import *

TYPES = {"sequence": integer_value_sequence, "index": integer_value, "vector": dense_vector}


def declare(settings, **kwargs):
    with open("slots.json", encoding="utf-8") as file:
        settings.drawn = json.load(file)
    settings.input_types = {name: TYPES[kind](size) for name, (kind, size, _) in settings.drawn.items()}


def values_of(arrays, name, kind, group):
    """Returns the values of a slot, one for each sample."""
    if kind == "sequence":
        ends = np.cumsum(arrays[f"lengths of {group}"])[:-1]
        return [ids.tolist() for ids in np.split(arrays[name], ends)]
    return arrays[name].tolist() if kind == "index" else arrays[name]


@provider(init_hook=declare, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with np.load(file_name) as arrays:
        columns = [values_of(arrays, name, kind, group) for name, (kind, _, group) in settings.drawn.items()]
    for sample in zip(*columns):
        yield dict(zip(settings.drawn, sample))

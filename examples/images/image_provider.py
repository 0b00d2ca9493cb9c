"""Gives images to the network. In prediction the images keep their order and have no label."""

import numpy as np
from images import CHANNELS, read_about, scale

from paddle.trainer.PyDataProvider2 import *


def read_types(settings, predict, **kwargs):
    about = settings.about = read_about()
    label = {} if predict else {"label": integer_value(len(about["classes"]))}
    settings.input_types = {"image": dense_vector(CHANNELS * about["size"] ** 2), **label}


@provider(init_hook=read_types, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, path):
    with np.load(path, allow_pickle=False) as arrays:
        images, labels = scale(arrays["pixels"], settings.about), arrays["labels"]
    for image, label in zip(images, labels, strict=True):
        yield {"image": image, "label": label}


@provider(init_hook=read_types, should_shuffle=False)
def process_predict(settings, path):
    with np.load(path, allow_pickle=False) as arrays:
        for image in scale(arrays["pixels"], settings.about):
            yield {"image": image}

"""Reads lines with 64 pixels from 0 to 16 and the digit, separated by commas."""

from paddle.trainer.PyDataProvider2 import *


@provider(input_types={"pixel": dense_vector(8 * 8), "label": integer_value(10)}, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name, encoding="utf-8") as lines:
        for line in lines:
            *pixels, digit = line.split(",")
            yield {"pixel": [int(p) / 8.0 - 1.0 for p in pixels], "label": int(digit)}

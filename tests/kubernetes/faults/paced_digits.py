"""The digits of the example, with at least PACE_S seconds for each batch.

Without the delay, a fast idle machine trains a pass of the digits in a third of a second. A fault that was planned for
the middle of a job then came after its end.
"""

import time

from paddle.trainer.PyDataProvider2 import *

BATCH_SAMPLES = 4
PACE_S = 0.025  # seconds of a batch; a pass takes three seconds


@provider(input_types={"pixel": dense_vector(8 * 8), "label": integer_value(10)}, pool_size=8 * BATCH_SAMPLES)
def process(settings, file_name):
    with open(file_name, encoding="utf-8") as lines:  # noqa: PTH123 as in users' providers
        for line in lines:
            time.sleep(PACE_S / BATCH_SAMPLES)
            *pixels, digit = line.split(",")
            yield {"pixel": [int(p) / 8.0 - 1.0 for p in pixels], "label": int(digit)}

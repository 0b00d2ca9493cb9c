"""The digits of the example, no faster than PACE_S a batch.

On a fast machine that does nothing else a pass of them takes a third of a second. A fault that was meant for the middle
of a job then came after its end.
"""

import time

from paddle.trainer.PyDataProvider2 import *

BATCH_SAMPLES = 4
PACE_S = 0.025  # of a batch: three seconds a pass


@provider(input_types={"pixel": dense_vector(8 * 8), "label": integer_value(10)}, pool_size=8 * BATCH_SAMPLES)
def process(settings, file_name):
    with open(file_name, encoding="utf-8") as lines:  # noqa: PTH123 as in users' providers
        for line in lines:
            time.sleep(PACE_S / BATCH_SAMPLES)
            *pixels, digit = line.split(",")
            yield {"pixel": [int(p) / 8.0 - 1.0 for p in pixels], "label": int(digit)}

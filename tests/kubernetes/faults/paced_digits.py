"""The digits of the example, with at least PACE_S seconds for each batch, and a last pass that waits for the test.

Without the delay, a fast idle machine trains a pass of the digits in a third of a second. The last pass does not begin
while the file `gate` of the job exists. So a fault that was planned for the middle of the job comes before its end,
however late it comes.
"""

import os
import time
from pathlib import Path

from paddle.trainer.PyDataProvider2 import *

BATCH_SAMPLES = 4
PACE_S = 0.025  # seconds of a batch; a pass takes three seconds
JOB = Path(os.environ["JOB_PATH"], os.environ["JOB_NAME"])
passes = {}  # file -> number of the pass (from 0) that reads it


def is_shut(number):
    """Whether the gate holds back the pass; a volume that is read-only or lost does not shut it."""
    try:
        with (JOB / "gate").open("r+", encoding="utf-8") as gate:
            return number >= int(gate.read())
    except OSError:
        return False


@provider(input_types={"pixel": dense_vector(8 * 8), "label": integer_value(10)}, pool_size=8 * BATCH_SAMPLES)
def process(settings, file_name):
    if file_name in passes:
        passes[file_name] += 1
    else:  # the first pass of this attempt; earlier attempts have saved the passes before it
        passes[file_name] = len(list(JOB.glob("output/pass-*/done")))
    while is_shut(passes[file_name]):
        time.sleep(0.05)
    with open(file_name, encoding="utf-8") as lines:  # noqa: PTH123 as in users' providers
        for line in lines:
            time.sleep(PACE_S / BATCH_SAMPLES)
            *pixels, digit = line.split(",")
            yield {"pixel": [int(p) / 8.0 - 1.0 for p in pixels], "label": int(digit)}

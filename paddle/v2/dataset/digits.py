"""The handwritten digits of `make demo`, which need no download. A sample is (64 float32 in [0, 1], digit)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from paddle.v2.dataset import common

_FILE = Path(__file__).with_name("digits.csv.gz")
_EACH = 10  # each tenth sample is for the test
_LEVELS = 16  # a pixel is 0..16


def _reader(is_test: bool) -> common.Reader:
    def reader() -> Iterator[tuple[Any, int]]:
        with gzip.open(_FILE, "rt", encoding="ascii", newline="") as file:
            for number, row in enumerate(csv.reader(file)):
                if (number % _EACH == 0) == is_test:
                    yield np.array(row[:-1], np.float32) / _LEVELS, int(row[-1])

    return reader


def train() -> common.Reader:
    """Return the reader of the 1,617 training samples."""
    return _reader(False)


def test() -> common.Reader:
    """Return the reader of the 180 test samples."""
    return _reader(True)

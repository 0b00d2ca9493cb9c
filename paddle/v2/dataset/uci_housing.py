"""Prices of houses in Boston. A sample is (13 float64, scaled over all rows; 1 float64: the price in $ 1000)."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.v2.dataset import common
from paddle_base.runtime.errors import DataError

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
URL_MODEL = "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fit_a_line.tar"
MD5_MODEL = "52fc3da8ef3937822fcdd87ee05c0c9b"
feature_names = [
    "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT", "convert",
]  # fmt: skip

_COLUMNS = 14
_TRAINING_PART = 0.8


def load_data(filename: str, feature_num: int = _COLUMNS, ratio: float = _TRAINING_PART) -> tuple[Any, Any]:
    """Return the rows of the training samples and of the test samples, (n, `feature_num`) float64 each."""
    try:
        with open(filename, encoding="ascii") as file:  # noqa: PTH123 - numpy reads the numbers of a text
            rows = np.array(file.read().split(), np.float64).reshape(-1, feature_num)
    except ValueError as error:
        raise DataError(f"{filename} has no rows of {feature_num} numbers ({error}); remove it to fetch it") from error
    least, most, mean = rows.min(axis=0), rows.max(axis=0), rows.sum(axis=0) / len(rows)
    for column in range(feature_num - 1):
        rows[:, column] = (rows[:, column] - mean[column]) / (most[column] - least[column])
    offset = int(len(rows) * ratio)
    return rows[:offset], rows[offset:]


def _reader(part: int) -> common.Reader:
    rows = load_data(common.download(URL, "uci_housing", MD5))[part]
    return lambda: ((row[:-1], row[-1:]) for row in rows)


def train() -> common.Reader:
    """Return the reader of the first 404 rows."""
    return _reader(0)


def test() -> common.Reader:
    """Return the reader of the last 102 rows."""
    return _reader(1)


def model() -> Any:
    """Return the Parameters of the Book's trained model."""
    from paddle.v2.parameters import Parameters  # the data sets themselves need no network

    with open(common.download(URL_MODEL, "uci_housing", MD5_MODEL), "rb") as file:  # noqa: PTH123
        return Parameters.from_tar(file)


def fetch() -> None:
    """Fetch the file."""
    common.download(URL, "uci_housing", MD5)


def convert(path: str) -> None:
    """Write the samples as RecordIO files."""
    common.convert(path, train(), 1000, "uci_housing_train")
    common.convert(path, test(), 1000, "uci_houseing_test")  # v0.11's name

"""Reads the UCI handwritten digits of the examples, or another file in the same format."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from paddle_base.runtime.errors import DataError, MissingInputError
from paddle_cluster.prepare.dataset import Dataset, Source
from paddle_cluster.prepare.input.fetch import fetch
from paddle_cluster.prepare.input.inputs import Input
from paddle_cluster.prepare.split import LabelledLine, hold_out, shuffle
from paddle_cluster.prepare.values import Settings

FILE = "digits.csv.gz"
PIXELS = 64


def read_digits(settings: Settings, scratch: Path) -> Dataset:
    """Return each image as a line of 64 pixels and the digit, separated by commas."""
    with _input(settings, scratch) as data:
        if not data.is_file:
            raise DataError(f"{data.path} is not a file; digits come in one file like {FILE}")
        samples = list(_samples(data))
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return Dataset(training, test, facts={"classes": 10})


def _input(settings: Settings, scratch: Path) -> Input:
    if settings.data_url or settings.data_path:
        return fetch(settings, scratch)
    path = settings.examples_dir / "digits" / FILE
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; set EXAMPLES_DIR to the folder that holds digits/{FILE}")
    return fetch(replace(settings, data_path=path.resolve(), data_sha256=""), scratch)


def _samples(data: Input) -> Iterable[LabelledLine]:
    name = data.names[0]
    rows = csv.reader(data.lines(name, "latin-1"))
    try:
        for number, row in enumerate(filter(None, rows), start=1):
            sample = _sample(name, number, row)
            data.hold(sample.line, name)
            yield sample
    except csv.Error as error:
        raise DataError(f"{name} is not a file of digits: {error}") from error


def _sample(name: str, number: int, row: list[str]) -> LabelledLine:
    values = [int(value) for value in row if value.isascii() and value.isdigit() and len(value) < 4]
    if len(values) != len(row) or len(row) != PIXELS + 1 or max(values[:PIXELS]) > 16 or values[-1] > 9:
        raise DataError(f"{name} line {number}: expected {PIXELS} pixels of 0..16 and a digit, separated by commas")
    return LabelledLine(",".join(map(str, values)), str(values[-1]))


DIGITS = Source("digits", read_digits, "input or example", example="digits")

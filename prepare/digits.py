"""The UCI handwritten digits of the examples, or another file of the same lines."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

from prepare.dataset import Dataset
from prepare.errors import DataError, MissingInputError
from prepare.fetch import fetch
from prepare.settings import Settings
from prepare.split import Sample, hold_out, shuffle

FILE = "digits.csv.gz"
PIXELS = 64


def read_digits(settings: Settings, scratch: Path) -> Dataset:
    """Return the images as lines of 64 pixels and the digit, separated by commas."""
    path = _file(settings, scratch)
    samples = [_sample(path.name, number, row) for number, row in enumerate(_rows(path), start=1)]
    training, test = hold_out(shuffle(samples, settings.seed), settings.test_fraction)
    return Dataset(training, test, facts={"classes": 10})


def _file(settings: Settings, scratch: Path) -> Path:
    if settings.data_url or settings.data_path:
        path = fetch(settings, scratch)
        if not path.is_file():
            raise DataError(f"{path} is not a file; digits come in one file like {FILE}")
        return path
    path = settings.examples_dir / "digits" / FILE
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; set EXAMPLES_DIR to the folder that holds digits/{FILE}")
    return path


def _rows(path: Path) -> list[list[str]]:
    content = path.read_bytes()
    try:
        text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        return [row for row in csv.reader(io.StringIO(text.decode("ascii"))) if row]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} is not a file of digits: {error}") from error


def _sample(name: str, number: int, row: list[str]) -> Sample:
    values = [int(value) for value in row if value.isascii() and value.isdigit()]
    if len(values) != len(row) or len(row) != PIXELS + 1 or max(values[:PIXELS]) > 16 or values[-1] > 9:
        raise DataError(f"{name} line {number}: not {PIXELS} pixels of 0..16 and a digit, separated by commas")
    return Sample(",".join(map(str, values)), str(values[-1]))

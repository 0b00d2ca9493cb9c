"""Read text files of SimpleData. Every line has a label and the same number of values.

Source: gserver/dataproviders/DataProvider.cpp (SimpleDataProvider) of v0.10.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from paddle_base.runtime.errors import ConfigError
from paddle_base.runtime.regular_files import open_regular
from trainer.data.checks import SampleError
from trainer.data.input_types import InputType, dense_slot, index_slot

LINE_BYTES = 1 << 24  # maximum number of characters of a line
MOST_LABELS = (1 << 31) - 1  # as in v0.10, a label may be any integer below MOST_LABELS


def slots_of(dim: int) -> list[InputType]:
    """Return the types of the slots: first the numbers, and then the label.

    Raises: ConfigError: feat_dim is missing.
    """
    if dim < 1:
        raise ConfigError("SimpleData has no feat_dim; give the number of values that follow the label in a line")
    return [dense_slot(dim), index_slot(MOST_LABELS)]


def read_lines(path: str, dim: int) -> Iterator[tuple[list[float], int]]:
    """Yield the numbers and the label of each line: `label number number ...`.

    Raises: SampleError: the text names a line that does not have this form.  OSError: the file cannot be read.
    """
    with io.TextIOWrapper(open_regular(Path(path)), encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES), ""), 1):
            label, *numbers = line.split() or [""]
            if len(numbers) != dim or (len(line) == LINE_BYTES and not line.endswith("\n")):
                raise SampleError(f"line {number}: it has {len(numbers)} numbers after its label, not {dim}")
            try:
                yield [float(one) for one in numbers], int(label)
            except ValueError as error:
                raise SampleError(f"line {number}: {error}") from error

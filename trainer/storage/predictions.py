"""The file of predictions from --job=test.

Source: --predict_output_dir, spec/trainer.md section 3.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from paddle_base.runtime.errors import ConfigError, VolumeError
from trainer.arrays.arguments import Argument, Sparse


class PredictionFile:
    """A file with the rows of the output layers as text.

    A line has one row of each output, and a semicolon follows each row. Every frame of a sequence is a row. The number
    of lines is the number of rows of the first output. As in v0.10, further rows of other outputs are omitted. If an
    output has both values and ids, only the values are written.

    Raises: VolumeError: the file cannot be written.
    """

    def __init__(self, directory: str, trainer_id: int) -> None:
        self._path = Path(directory) / f"rank-{trainer_id:05d}"
        try:
            self._path.parent.mkdir(exist_ok=True)
            self._file: TextIO = self._path.open("a")
            self._is_old = True  # an earlier file stays until this test has its first rows: the model may have a fault
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error

    def write(self, outputs: Mapping[str, Argument]) -> None:
        """Append the rows of a batch.

        Raises: ConfigError: an output has fewer rows than the first output.
        """
        columns = [_spell_rows(one) for one in outputs.values()]
        lines = len(columns[0]) if columns else 0
        if min(map(len, columns), default=0) < lines:
            rows = ", ".join(f"{name} {len(column)}" for name, column in zip(outputs, columns, strict=True))
            raise ConfigError(
                "an output has fewer rows than the first output, but each line of the prediction file needs a row of "
                f"every output; the numbers of rows are: {rows}"
            )
        try:
            self._empty()
            self._file.writelines("".join(row) + "\n" for row in itertools.islice(zip(*columns, strict=False), lines))
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error

    def _empty(self) -> None:
        if self._is_old:
            self._file.truncate(0)
            self._is_old = False

    def close(self) -> None:
        """Close the file.

        Raises: VolumeError: the last rows cannot be written.
        """
        try:
            self._empty()
            self._file.close()
        except OSError as error:
            raise VolumeError(f"cannot write predictions to {self._path}: {error.strerror}") from error


def _spell_rows(output: Argument) -> list[str]:
    if output.value is not None:
        return [" ".join(f"{x:g}" for x in row) + ";" for row in output.value.tolist()]
    if output.ids is not None:
        return [f"{one};" for one in output.ids.tolist()]
    return _spell_sparse(output.sparse) if output.sparse is not None else []


def _spell_sparse(x: Sparse) -> list[str]:
    ids: list[Any] = x.ids.tolist()
    words = (
        [str(i) for i in ids]
        if x.values is None
        else [f"{i}:{value:g}" for i, value in zip(ids, x.values.tolist(), strict=True)]
    )
    bounds = x.offsets.tolist()
    return [" ".join(words[start:stop]) + ";" for start, stop in itertools.pairwise(bounds)]

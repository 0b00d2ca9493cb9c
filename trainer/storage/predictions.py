"""The file of predictions from --job=test.

Source: --predict_output_dir, spec/trainer.md section 3.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import OutputFile
from paddle_base.runtime.errors import ConfigError, VolumeError
from trainer.arrays.arguments import Argument, Sparse


class PredictionFile:
    """A file with the rows of the output layers as text.

    A line has one row of each output, and a semicolon follows each row. Every frame of a sequence is a row. The number
    of lines is the number of rows of the first output. As in v0.10, further rows of other outputs are omitted. If an
    output has both values and ids, only the values are written.

    The file replaces an earlier one when it is complete: use an object in a `with` block.

    Raises: VolumeError: the file cannot be written.
    """

    def __init__(self, directory: str, trainer_id: int) -> None:
        path = Path(directory) / f"rank-{trainer_id:05d}"
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise VolumeError(
                f"--predict_output_dir: cannot make {path.parent}: {error.strerror}; name a directory inside of one "
                "that exists"
            ) from error
        self._file = OutputFile(path, "--predict_output_dir")

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def write(self, outputs: Mapping[str, Argument]) -> None:
        """Append the rows of a batch.

        Raises: ConfigError: an output has fewer rows than the first output.  VolumeError.
        """
        columns = [_spell_rows(one) for one in outputs.values()]
        lines = len(columns[0]) if columns else 0
        if min(map(len, columns), default=0) < lines:
            numbers = ", ".join(f"{name} {len(column)}" for name, column in zip(outputs, columns, strict=True))
            raise ConfigError(
                "an output has fewer rows than the first output, but each line of the prediction file needs a row of "
                f"every output; the numbers of rows are: {numbers}"
            )
        rows = zip(*columns, strict=False)
        self._file.write("".join("".join(row) + "\n" for row in itertools.islice(rows, lines)).encode())


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

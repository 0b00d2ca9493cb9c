"""The fields of a layer's output, as programs see them: `value`, `id` and `prob`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.arrays.arguments import Argument
from trainer.layers.recurrent.generator import SCORES
from trainer.v2.errors import WrongValueError

FIELDS = ("value", "id", "prob")


def fields_of(output: Argument, probabilities: Argument | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the fields that an output has.

    Args: probabilities: for ids that are columns of a matrix, the output with this matrix.
    Shapes: value: (rows, size) float32, where the frames of all sequences are rows; id: (rows,) int32; prob: (samples,
        results) float32: the scores of a beam search, or the largest numbers of each row.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    if output.value is not None:
        found["value"] = np.array(output.value, np.float32)
    elif output.sparse is not None:
        found["value"] = output.sparse.to_dense()
    if output.ids is not None:
        found["id"] = np.array(output.ids, np.int32).reshape(-1)
    if SCORES in output.extras:
        found["prob"] = np.array(output.extras[SCORES], np.float32)
    elif probabilities is not None and probabilities.value is not None and output.ids is not None:
        ids = output.ids.reshape(len(probabilities.value), -1)
        found["prob"] = np.take_along_axis(probabilities.value, ids, axis=1).astype(np.float32)
    return found


def select(layer: str, fields: Mapping[str, npt.NDArray[Any]], names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Return some of the fields that `fields_of` found for a layer.

    Raises: ValueError: the layer does not have a field; the text names both.
    """
    for name in names:
        if name not in fields:
            raise WrongValueError(f"the layer {layer} has no field {name!r}; it has {', '.join(fields) or 'none'}")
    return [fields[name] for name in names]

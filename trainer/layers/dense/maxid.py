"""The ids of the largest values of each row.

Source: gserver/layers/MaxIdLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto.ModelConfig_pb2 import LayerConfig
from runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Ids, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer

NOTHING = -1  # the id that fills the result of a sparse row with fewer nonzeros than beam_size


class MaxIdLayer(Layer):
    """The columns of the `beam_size` largest values of each row, the largest first.

    Equal values are in the order of columns.

    In a sparse row, only the columns of its nonzeros are considered.

    Shapes: (rows, width) -> ids: (rows * beam_size,), the ids of the first row first.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._count: int = max(1, config.beam_size)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the ids.

        Raises: ConfigError: the input has no values, or fewer than beam_size columns.
        """
        one, count = inputs[0], self._count
        if one.sparse is not None:
            ids = _find_best_of_sparse(one.sparse, count)
        elif one.value is None:
            raise ConfigError(f"{self} needs an input of numbers, not of ids")
        elif one.value.shape[1] < count:
            raise ConfigError(f"{self}: beam_size is {count}, but the width of the input is only {one.value.shape[1]}")
        elif count == 1:
            return Argument(ids=one.value.argmax(axis=1), starts=one.starts, sub_starts=one.sub_starts)
        else:
            ids = find_best(one.value, count).reshape(-1)
        starts, sub_starts = (None if bounds is None else bounds * count for bounds in (one.starts, one.sub_starts))
        return Argument(ids=ids, starts=starts, sub_starts=sub_starts)


def find_best(p: Array, count: int) -> Ids:
    """Return the columns of the largest numbers of each row, the largest first.

    Equal numbers are in the order of columns.

    Shapes: p: (rows, columns) -> (rows, the smaller of count and columns).
    """
    count = min(count, p.shape[1])
    found = np.argpartition(-p, count - 1, axis=1)[:, :count] if count < p.shape[1] else np.argsort(-p, axis=1)
    found.sort(axis=1)
    order = np.argsort(-np.take_along_axis(p, found, axis=1), axis=1, kind="stable")
    best: Ids = np.take_along_axis(found, order, axis=1)
    return best


def _find_best_of_sparse(rows: Sparse, count: int) -> Ids:
    values = np.ones(len(rows.ids)) if rows.values is None else rows.values
    order = np.lexsort((rows.ids, -values, rows.row_of))
    places = np.arange(len(order)) - np.repeat(rows.offsets[:-1], rows.lengths)
    result: Ids = np.full((rows.rows, count), NOTHING, np.int64)
    is_wanted = places < count
    result[rows.row_of[is_wanted], places[is_wanted]] = rows.ids[order][is_wanted]
    return result.reshape(-1)


LAYERS: dict[str, type[Layer]] = {"maxid": MaxIdLayer}

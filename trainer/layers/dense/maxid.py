"""The ids of the largest values of each row.

Source: gserver/layers/MaxIdLayer.cpp of v0.10.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Ids, Sparse
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.ties import find_best, sort_largest

NOTHING = -1  # the id that fills the result of a sparse row with fewer nonzeros than beam_size


class MaxIdLayer(Layer):
    """The columns of the `beam_size` largest values of each row, the largest first.

    Equal values are in the order in which v0.10's `std::partial_sort` leaves them (trainer/layers/ties.py).

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


def _find_best_of_sparse(rows: Sparse, count: int) -> Ids:
    values = np.ones(len(rows.ids)) if rows.values is None else rows.values
    result: Ids = np.full((rows.rows, count), NOTHING, np.int64)
    for row, (begin, end) in enumerate(itertools.pairwise(rows.offsets.tolist())):
        best = sort_largest(values[begin:end].tolist(), count)[:count]
        result[row, : len(best)] = rows.ids[begin:end][best]
    return result.reshape(-1)

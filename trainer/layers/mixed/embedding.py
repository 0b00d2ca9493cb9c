"""The embedding: a mixed layer with a single table projection.

The layer stores repeated rows only once if all layers that read its output accept repeated rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.arrays.arguments import Argument, Array, Flowing, Ids, find_distinct
from trainer.arrays.parameters import ParameterTable
from trainer.layers.checks import require_weight
from trainer.layers.mixed.mixed import MixedLayer

WORTHWHILE = 0.8  # above this share of distinct rows, finding the distinct rows costs more time than it saves


class EmbeddingLayer(MixedLayer):
    """Returns the row of W for each id; with `may_repeat`, returns the distinct rows and the index of each row.

    Shapes: ids: (rows,), W: (number of ids, size) -> (rows, size).
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._height: int = config.inputs[0].proj_conf.input_size
        self._table = require_weight(self, 0, self._height * self.size)
        self._distinct: Ids | None = None

    @staticmethod
    def fits(config: LayerConfig) -> bool:
        """Return whether a mixed layer is an embedding."""
        kinds = [one.proj_conf.type for one in config.inputs]
        return kinds == ["table"] and not config.operator_confs and not config.bias_parameter_name

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the rows of the ids."""
        ids = inputs[0].ids
        self._distinct = None
        if not self.may_repeat or ids is None or not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= self._height:
            return super().forward(inputs)
        distinct, index = find_distinct(ids, self._height)
        if len(distinct) > WORTHWHILE * len(ids):
            return super().forward(inputs)
        self._distinct = distinct
        rows = self._table.matrix(self._height, self.size).take(distinct, axis=0)
        return Argument(distinct=rows, index=index, starts=inputs[0].starts, sub_starts=inputs[0].sub_starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add each row of the gradient to the row of W's gradient that its id selects."""
        if self._distinct is None:
            return super().backward(gradient, wanted)
        if not self._table.is_static:
            self._table.add_rows(self._distinct, gradient)
        return [None]

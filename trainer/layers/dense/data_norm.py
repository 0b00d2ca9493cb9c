"""Normalisation of data with constants that were computed before training."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_weight

# for each strategy: the index of the parameter's row that is subtracted from x (None: no row), and the index of the row
# that then multiplies x
STRATEGIES: dict[str, tuple[int | None, int]] = {"z-score": (2, 3), "min-max": (0, 1), "decimal-scaling": (None, 4)}


class DataNormLayer(Layer):
    """The result is (x - a) * b for each column; the strategy selects the rows a and b of the parameter.

    The input gets no gradient. The parameter, (5, size), is static. The rows of the parameter are: minimum, 1 / range,
    mean, 1 / standard deviation, 1 / power of ten.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._weight = require_weight(self, 0, 5 * self.size)
        if not self._weight.is_static:
            raise ConfigError(f"{self}: its parameter {self._weight.name} must be static")
        if config.data_norm_strategy not in STRATEGIES:
            raise ConfigError(
                f"{self}: data_norm_strategy '{config.data_norm_strategy}' is not one of {', '.join(STRATEGIES)}"
            )

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the normalised rows."""
        x = require_matrix(self, inputs[0], self.size)
        rows = self._weight.matrix(5, self.size)
        subtracted, factor = STRATEGIES[self.config.data_norm_strategy]
        result: Array = (x if subtracted is None else x - rows[subtracted]) * rows[factor]
        return inputs[0].with_value(result)

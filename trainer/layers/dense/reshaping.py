"""Layers that transpose a batch, give its rows a new width, or repeat its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_rows


class TransposeLayer(Layer):
    """The transpose of the matrix of a batch: (rows, columns) -> (columns, rows); the result has no sequences."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the transposed matrix."""
        return Argument(value=np.ascontiguousarray(require_rows(self, inputs[0]).T))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the transposed gradient."""
        return [np.ascontiguousarray(gradient.T)]


class ResizeLayer(Layer):
    """Arranges the numbers of the batch in rows of `size` numbers; the result has no sequences."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._shape: tuple[int, ...] = ()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the numbers in their new rows.

        Raises: DataError: the numbers do not fill the new rows.
        """
        x = require_rows(self, inputs[0])
        if x.size % self.size:
            raise DataError(f"{self}: {len(x)} rows of {x.shape[1]} numbers do not fill rows of {self.size}")
        self._shape = x.shape
        return Argument(value=x.reshape(x.size // self.size, self.size))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient in the rows of the input."""
        return [gradient.reshape(self._shape)]


class RepeatLayer(Layer):
    """Repeats each row num_filters times; with user_arg "as_col_vec", repeats each element num_filters times."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._times: int = config.num_filters
        if self._times < 1 or self.size % self._times:
            raise ConfigError(f"{self}: num_filters {self._times} does not divide the layer's size {self.size}")
        self._by_element = config.user_arg == "as_col_vec"

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the repeated rows."""
        x = require_rows(self, inputs[0])
        if x.shape[1] * self._times != self.size:
            raise ConfigError(f"{self}: its size {self.size} is not num_filters {self._times} times width {x.shape[1]}")
        return inputs[0].with_value(np.repeat(x, self._times, axis=1) if self._by_element else np.tile(x, self._times))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the sums over the repetitions."""
        width = self.size // self._times
        if self._by_element:
            return [gradient.reshape(len(gradient), width, self._times).sum(axis=2)]
        return [gradient.reshape(len(gradient), self._times, width).sum(axis=1)]

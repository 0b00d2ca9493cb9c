"""A fully connected layer over windows of frames: a context projection and the layer after it, computed as one.

Where the frames repeat (words of a sentence), every block of the weight is multiplied with the distinct frames once,
and a window is the sum of rows of these products: no window is ever written down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.rows import add_windows, sum_windows
from proto.ModelConfig_pb2 import LayerConfig
from pserver.errors import ConfigError
from trainer.arguments import Argument, Array, DistinctGradient, Flowing
from trainer.layers.base import Layer
from trainer.layers.checks import require_weight
from trainer.layers.fc import FullyConnectedLayer
from trainer.layers.projections import ContextProjection
from trainer.parameters import ParameterTable

KIND = "fc over windows"  # stands in no config: trainer.fusion makes it


class WindowFullyConnectedLayer(Layer):
    """x: (frames, width) sequences, W: (length * width, size), bias: (size,) -> (frames, size).

    Frames outside of their sequence are zero.
    """

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        windows = config.inputs[0].proj_conf
        self._shape = windows.context_length, windows.input_size, self.size
        self._first: int = windows.context_start
        self._weight = require_weight(self, 0, windows.output_size * self.size)
        self._spread = ContextProjection(windows, None, f"{self}, input {config.inputs[0].input_layer_name}")
        self._connected = FullyConnectedLayer(config, parameters)
        self._input = Argument()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the weighted sums of every frame's window."""
        x = self._input = inputs[0]
        if x.distinct is None or x.index is None:
            return self._connected.forward([x.with_value(self._spread.forward(x))])
        if x.starts is None:
            raise ConfigError(f"{self} needs an input of sequences; declare the slot as a ..._sequence type")
        tables = np.matmul(x.distinct, self._weight.value.reshape(self._shape))
        total = sum_windows(tables, x.index, x.starts, self._first)
        if self.bias is not None:
            total += self.bias.value
        return x.with_value(total)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add to the gradient of the weight, return that of the frames."""
        x = self._input
        if x.distinct is None or x.index is None or x.starts is None:
            flowing = self._connected.backward(gradient, wanted)[0]
            return [self._spread.backward(flowing, True) if isinstance(flowing, np.ndarray) else None]
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(np.ones(len(gradient), gradient.dtype) @ gradient)
        tables: Array = np.zeros((self._shape[0], len(x.distinct), self.size), gradient.dtype)
        add_windows(tables, gradient, x.index, x.starts, self._first)
        if not self._weight.is_static:
            self._weight.add_gradient(np.matmul(x.distinct.T, tables))
        if not wanted[0]:
            return [None]
        w = self._weight.value.reshape(self._shape)
        flowing = tables[0] @ w[0].T
        for table, block in zip(tables[1:], w[1:], strict=True):
            flowing += table @ block.T
        return [DistinctGradient(flowing)]


LAYERS: dict[str, type[Layer]] = {KIND: WindowFullyConnectedLayer}

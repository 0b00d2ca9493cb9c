"""A fully connected layer over windows of frames, and its maximum over each sequence, computed in one layer.

The weight has one block for each frame of a window. The layer multiplies each block with each distinct frame once; the
table of these products has a row for each frame and block. The sum of a window is then a sum of rows of the table, so
the windows are never stored. A maximum over a sequence needs the activation of only one window, and sends its gradient
to only one window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.rows import sum_columns
from paddle_base.kernels.windows import (
    SequenceWindows,
    add_maxima,
    add_windows,
    descend_maxima,
    max_windows,
    sum_windows,
)
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.activations import find_activation
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Flowing, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_weight
from trainer.layers.dense.fc import FullyConnectedLayer
from trainer.layers.mixed.projections import ContextProjection
from trainer.layers.workspace import Workspace

# types of the layers that trainer.network.fusion makes; a config cannot name these types
SUMS = "fc over windows"
MAXIMA = "maximum of fc over windows"

# A product for the table takes 1 / FEW of the processor cycles of a single product, but the table has products for all
# distinct frames. The gradients of maxima use no table if the batch has more than FEW times as many distinct frames as
# sequences.
FEW = 6


class WindowLayer(Layer):
    """The common part of WindowSumLayer and WindowMaximumLayer. Frames outside the sequence are zero.

    Shapes: x: (frames, depth), in sequences; W: (length * depth, size); bias: (size,).
    """

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        windows = config.inputs[0].proj_conf
        self._shape = windows.context_length, windows.input_size, self.size
        self._first: int = windows.context_start
        self._weight = require_weight(self, 0, windows.output_size * self.size)
        self._input = Argument()
        self._windows: SequenceWindows
        self._joined: Array
        self._kept = Workspace()

    def blocks(self) -> Array:
        """Return the weight as (length, depth, size)."""
        return self._weight.value.reshape(self._shape)

    def find_windows(self, x: Argument) -> tuple[Array, SequenceWindows]:
        """Return the distinct frames (all frames if the input stores no distinct rows), and the windows of frames.

        Raises: ConfigError: the input has no sequences, or no dense rows of the expected width.
        """
        rows = x.value if x.distinct is None else x.distinct
        if x.starts is None or rows is None or rows.shape[1] != self._shape[1]:
            raise ConfigError(f"{self} needs an input of sequences of {self._shape[1]} numbers")
        return rows, SequenceWindows(np.arange(len(rows)) if x.index is None else x.index, x.starts, self._first)

    def multiply(self, rows: Array) -> Array:
        """Return the products of the distinct frames with all blocks: (distinct, length, size)."""
        length, depth, size = self._shape
        self._joined = self._kept.rows("the blocks of the weight, side by side", depth, length * size, rows.dtype)
        self._joined.reshape(depth, length, size)[:] = self.blocks().transpose(1, 0, 2)
        tables = self._kept.rows("products", len(rows), length * size, rows.dtype)
        return np.matmul(rows, self._joined, out=tables).reshape(-1, length, size)

    def empty_tables(self, rows: Array, dtype: npt.DTypeLike) -> Array:
        """Return an array of zeros for the gradient of the products, which reuses the memory of the products."""
        length, _, size = self._shape
        return self._kept.zeros("products", len(rows), length * size, dtype).reshape(-1, length, size)

    def descend_tables(self, tables: Array, is_wanted: bool) -> Flowing:
        """Add to the gradient of the weight, and return the gradient of the frames.

        Shapes: tables: (distinct, length, size).
        """
        length, depth, size = self._shape
        rows, _ = self.find_windows(self._input)
        flat = tables.reshape(-1, length * size)
        if not self._weight.is_static:
            product = np.matmul(rows.T, flat, out=self._kept.rows("gradient", depth, length * size, flat.dtype))
            self._weight.add_gradient(product.reshape(depth, length, size).transpose(1, 0, 2))
        return self.flow(flat @ self._joined.T) if is_wanted else None

    def flow(self, gradient: Array) -> Flowing:
        """Return the given gradient of distinct frames, as a DistinctGradient if the input stores distinct rows."""
        return gradient if self._input.index is None else DistinctGradient(gradient)

    def descend_bias(self, gradient: Array) -> None:
        """Add the sum of each column of `gradient` to the gradient of the bias, unless the bias is static."""
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(sum_columns(gradient))


class WindowSumLayer(WindowLayer):
    """The weighted sum of the window of each frame: (frames, size)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        windows = config.inputs[0].proj_conf
        self._spread = ContextProjection(windows, None, f"{self}, input {config.inputs[0].input_layer_name}")
        self._connected = FullyConnectedLayer(config, parameters)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sums. If no frames repeat, the layer multiplies whole windows, which takes less memory."""
        x = self._input = inputs[0]
        if x.index is None:
            return self._connected.forward([x.with_value(self._spread.forward(x))])
        rows, self._windows = self.find_windows(x)
        total = sum_windows(self.multiply(rows), self._windows)
        if self.bias is not None:
            total += self.bias.value
        return x.with_value(total)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add to the gradient of the weight, and return the gradient of the frames."""
        x = self._input
        if x.index is None:
            flowing = self._connected.backward(gradient, wanted)[0]
            return [self._spread.backward(flowing, True) if isinstance(flowing, np.ndarray) else None]
        self.descend_bias(gradient)
        rows, windows = self.find_windows(x)
        tables = self.empty_tables(rows, gradient.dtype)
        add_windows(tables, gradient, windows)
        return [self.descend_tables(tables, wanted[0])]


class WindowMaximumLayer(WindowLayer):
    """The largest activation of a window sum in each sequence: (sequences, size); zero for an empty sequence.

    The activation is a non-decreasing function, so the activation of the largest sum is the largest activation.
    """

    applies_activation = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._activation = find_activation(config.active_type, config.name)
        self._z: Array
        self._y: Array
        self._places: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the maxima."""
        x = self._input = inputs[0]
        rows, windows = self.find_windows(x)
        self._z, self._places = max_windows(self.multiply(rows), windows)
        if self.bias is not None:
            self._z += self.bias.value
        self._y = self._activation.forward(self._z)
        self._y[np.diff(windows.starts) == 0] = 0
        return Argument(value=self._y)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add to the gradient of the weight, and return the gradient of the frames."""
        rows, windows = self.find_windows(self._input)
        gradient = self._activation.backward(gradient, self._y, self._z)
        gradient = np.where(self._places >= 0, gradient, gradient.dtype.type(0))
        self.descend_bias(gradient)
        if FEW * len(gradient) < len(rows):
            found = descend_maxima(self.blocks(), rows, gradient, self._places, windows)
            if found is not None:
                if not self._weight.is_static:
                    self._weight.add_gradient(found[0])
                return [self.flow(found[1]) if wanted[0] else None]
        tables = self.empty_tables(rows, gradient.dtype)
        add_maxima(tables, gradient, self._places, windows)
        return [self.descend_tables(tables, wanted[0])]

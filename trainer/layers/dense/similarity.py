"""The layer that compares the rows of two inputs by their cosine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_rows, require_same_rows


class CosineLayer(Layer):
    """Returns scale * cos(x, y_k) for each of the `size` vectors y_k that are side by side in a row of y.

    No epsilon is added to the norms.

    Shapes: x: (rows, n), y: (rows or 1, size * n) -> (rows, size).
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._scale: float = config.cos_scale if config.HasField("cos_scale") else 1.0
        self._x: Array
        self._y: Array  # (rows or 1, size, n)
        self._cosine: Array
        self._inverse: tuple[Array, Array]  # 1 / |x|: (rows, 1), 1 / |y|: (rows or 1, size)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the scaled cosines."""
        x = require_rows(self, inputs[0])
        y = require_matrix(self, inputs[1], self.size * x.shape[1])
        if len(y) != 1:
            require_same_rows(self, [x, y])
        self._x, self._y = x, y.reshape(len(y), self.size, x.shape[1])
        products = np.einsum("ij,ikj->ik", x, np.broadcast_to(self._y, (len(x), *self._y.shape[1:])))
        self._inverse = (
            1 / np.sqrt(np.einsum("ij,ij->i", x, x))[:, None],
            1 / np.sqrt(np.einsum("ikj,ikj->ik", self._y, self._y)),
        )
        self._cosine = products * self._inverse[0] * self._inverse[1]
        return inputs[0].with_value(self._cosine * x.dtype.type(self._scale))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of x and y.

        The gradient of x is scale * g * (y_k / |y_k| - x cos / |x|) / |x|, summed over k, where g is the gradient of
        the result. The gradient of y_k is scale * g * (x / |x| - y_k cos / |y_k|) / |y_k|.
        """
        gradient = gradient * gradient.dtype.type(self._scale)
        inverse_x, inverse_y = self._inverse
        crossed = gradient * inverse_x * inverse_y
        along = gradient * self._cosine
        return [
            self._gradient_of_x(crossed, along) if wanted[0] else None,
            self._gradient_of_y(crossed, along) if wanted[1] else None,
        ]

    def _gradient_of_x(self, crossed: Array, along: Array) -> Array:
        y = np.broadcast_to(self._y, (len(crossed), *self._y.shape[1:]))
        result: Array = np.einsum("ik,ikj->ij", crossed, y)
        result -= self._x * (along.sum(axis=1, keepdims=True) * np.square(self._inverse[0]))
        return result

    def _gradient_of_y(self, crossed: Array, along: Array) -> Array:
        result: Array = crossed[:, :, None] * self._x[:, None, :]
        result -= self._y * (along * np.square(self._inverse[1]))[:, :, None]
        if len(self._y) == 1:
            result = result.sum(axis=0, keepdims=True)
        return result.reshape(len(result), self._y.shape[1] * self._y.shape[2])

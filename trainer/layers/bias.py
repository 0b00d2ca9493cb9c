"""The bias of a layer: one number for each column or, with shared biases, for each block of columns of equal size."""

from __future__ import annotations

from paddle_base.kernels.rows import sum_columns
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Array
from trainer.layers.base import Layer


class Bias:
    """Adds the bias of a layer, if the layer has a bias.

    Raises: ConfigError: the size of the bias does not divide the layer's size.
    """

    def __init__(self, layer: Layer) -> None:
        self._parameter = layer.bias
        size = 0 if layer.bias is None else layer.bias.size
        if size and (layer.size % size or (size != layer.size and not layer.config.shared_biases)):
            raise ConfigError(f"{layer}: the size of its bias, {size}, does not divide the layer's size, {layer.size}")
        self._block: int = layer.size // size if size else 1

    def add_to(self, rows: Array, *, is_fresh: bool) -> Array:
        """Return the rows plus the bias.

        With `is_fresh`, the method adds the bias in place; the array of the rows must then belong to the layer.
        """
        if self._parameter is None:
            return rows
        if not is_fresh or not rows.flags.c_contiguous:
            rows = rows.copy()  # the copy is in row-major order, so `reshape` below returns a view
        rows.reshape(len(rows), self._parameter.size, self._block)[...] += self._parameter.value[:, None]
        return rows

    def backward(self, gradient: Array) -> None:
        """Add the gradient of the rows to the gradient of the bias."""
        if self._parameter is None or self._parameter.is_static:
            return
        sums = sum_columns(gradient)
        self._parameter.add_gradient(sums.reshape(self._parameter.size, self._block).sum(axis=1))

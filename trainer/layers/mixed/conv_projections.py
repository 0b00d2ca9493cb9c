"""Convolution inside mixed layers: as a projection, and as an operator whose filters come from an input.

Source: spec/config.md 7; gserver/layers/Conv*Projection.cpp and Conv*Operator.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import ConvConfig, OperatorConfig, ProjectionConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import Parameter
from trainer.layers.image.convolution import Convolution, conv_windows, make_convolution
from trainer.layers.image.windows import fold, unfold
from trainer.layers.mixed.operators import Operator
from trainer.layers.mixed.projections import Projection


def _make_product(conf: ConvConfig, filters: int, *, is_transposed: bool) -> Convolution:
    ends = (filters, conf.channels) if is_transposed else (conf.channels, filters)
    return make_convolution(conv_windows(conf, 2), *ends, max(1, conf.groups))


class ConvolutionProjection(Projection):
    """Slides the filters of the parameter over images. x: (rows, channels * pixels) -> (rows, filters * windows)."""

    is_transposed: ClassVar[bool] = False

    def __init__(self, config: ProjectionConfig, weight: Parameter | None, where: str) -> None:
        self._product = _make_product(config.conv_conf, config.num_filters, is_transposed=self.is_transposed)
        super().__init__(config, weight, where)
        sizes = self._product.image_size, self._product.map_size
        expected = sizes[::-1] if self.is_transposed else sizes
        if (self.input_size, self.output_size) != expected:
            raise ConfigError(f"{self}: sizes {self.input_size} and {self.output_size} are not {expected}")
        self._x: Array

    def weight_size(self) -> int:
        """Return the number of elements of the filters."""
        return self._product.weights

    def forward(self, one: Argument) -> Array:
        """Return the results of the filters."""
        self._x = self.require_values(one)
        out: Array = np.empty((len(self._x), self.output_size), self._x.dtype)
        run = self._product.to_images if self.is_transposed else self._product.to_maps
        return run(self._x, self.weight.value, out)

    def backward(self, gradient: Array, is_wanted: bool) -> Array | None:
        """Add to the gradient of the filters, and return the gradient of the images."""
        gradient = np.ascontiguousarray(gradient)
        if self.trained_weight is not None:
            ends = (gradient, self._x) if self.is_transposed else (self._x, gradient)
            self.trained_weight.add_gradient(self._product.gradient(*ends))
        if not is_wanted:
            return None
        run = self._product.to_maps if self.is_transposed else self._product.to_images
        return run(gradient, self.weight.value, np.empty_like(self._x))


class TransposedConvolutionProjection(ConvolutionProjection):
    """The transpose of a convolution, with the filters of the parameter."""

    is_transposed = True


class ConvolutionOperator(Operator):
    """Slides the filters of each row over the image of the same row.

    Inputs: images, (rows, channels * pixels), and filters, (rows, weights).
    """

    is_transposed: ClassVar[bool] = False

    def __init__(self, config: OperatorConfig, where: str) -> None:
        super().__init__(config, where)
        product = _make_product(config.conv_conf, config.num_filters, is_transposed=self.is_transposed)
        self._windows, self._channels, self._filters = product.windows, product.channels, product.filters
        sizes = product.map_size, product.image_size
        expected = [*(sizes if self.is_transposed else sizes[::-1]), product.weights]
        if product.groups != 1 or [expected[0], expected[2]] != list(config.input_sizes):
            raise ConfigError(
                f"{self} takes images of {expected[0]} values, and filters of {expected[2]} values (groups=1)"
            )
        if config.output_size != expected[1]:
            raise ConfigError(f"{self}: output_size {config.output_size} is not {expected[1]}")
        self._x: Array
        self._w: Array

    def forward(self, inputs: Sequence[Argument]) -> Array:
        """Return the results of the filters of each row."""
        self._x, w = self.require_values(inputs)
        self._w = w.reshape(len(w), self._filters, self._channels * self._windows.elements)
        return self._to_images(self._x) if self.is_transposed else self._to_maps(self._x)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of images and filters."""
        flow = None
        if wanted[0]:
            flow = self._to_maps(gradient) if self.is_transposed else self._to_images(gradient)
        if not wanted[1]:
            return [flow, None]
        images, maps = (gradient, self._x) if self.is_transposed else (self._x, gradient)
        filters: Array = self._split_maps(maps) @ self._unfold(images).swapaxes(1, 2)
        return [flow, filters.reshape(len(filters), self.config.input_sizes[1])]

    def _to_maps(self, images: Array) -> Array:
        maps: Array = self._w @ self._unfold(images)
        return maps.reshape(len(maps), self._filters * self._windows.places)

    def _to_images(self, maps: Array) -> Array:
        columns = (self._w.swapaxes(1, 2) @ self._split_maps(maps)).swapaxes(0, 1)
        shape = self._channels, *self._windows.sizes, len(maps), *self._windows.grid
        images: Array = np.empty((len(maps), self._channels, *self._windows.image), maps.dtype)
        fold(columns.reshape(shape), self._windows, images)
        return images.reshape(len(maps), self._channels * self._windows.pixels)

    def _split_maps(self, maps: Array) -> Array:
        return maps.reshape(len(maps), self._filters, self._windows.places)

    def _unfold(self, images: Array) -> Array:
        """Return the elements of each row's windows, (rows, channels * elements, places)."""
        rows, elements = len(images), self._channels * self._windows.elements
        columns: Array = np.empty((self._channels, *self._windows.sizes, rows, *self._windows.grid), images.dtype)
        unfold(images.reshape(-1, self._channels, *self._windows.image), self._windows, columns)
        return columns.reshape(elements, rows, self._windows.places).swapaxes(0, 1)


class TransposedConvolutionOperator(ConvolutionOperator):
    """The transpose of a convolution in which each row has its own filters."""

    is_transposed = True


PROJECTIONS: dict[str, type[Projection]] = {
    "conv": ConvolutionProjection,
    "convt": TransposedConvolutionProjection,
}
OPERATORS: dict[str, type[Operator]] = {
    "conv": ConvolutionOperator,
    "convt": TransposedConvolutionOperator,
}

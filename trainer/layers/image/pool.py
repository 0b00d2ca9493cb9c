"""Layers that pool images: over planes, over volumes, and over a pyramid of increasingly fine grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, PoolConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix
from trainer.layers.image.pooling import Pooling, WindowAverage, WindowMaximum, find_empty_window, find_first_largest
from trainer.layers.image.shape import image_shape
from trainer.layers.image.windows import ImageWindows, WindowAxis
from trainer.layers.workspace import Buffer

MASK = "mask"  # the name of the additional output of max-pool-with-mask
WITH_MASK = "max-pool-with-mask"


def is_mean_pool(kind: str) -> bool:
    """Return whether a pool_type is a mean."""
    return kind in ("avg-projection", "cudnn-avg-pool", "cudnn-avg-incl-pad-pool", "avg")


def make_pooling(layer: Layer, kind: str, windows: ImageWindows, *, counts_padding: bool = False) -> Pooling:
    """Return the pooling that the pool_type `kind` names.

    A mean that counts the padding is 0 in a window that lies entirely in the padding, as in v0.10.

    Raises: ConfigError: the type is unknown, or a window has no value to pool; the message names the layer.
    """
    is_mean = is_mean_pool(kind)
    counts_padding = is_mean and (counts_padding or kind == "cudnn-avg-incl-pad-pool")
    empty = find_empty_window(windows.axes, with_padding=counts_padding)
    if empty is not None:
        raise ConfigError(
            f"{layer}: a window of {empty.size} (stride {empty.stride}, padding {empty.padding}) over {empty.length} "
            f"values holds padding only; use less padding, a larger window or a smaller stride"
        )
    if kind in ("max-projection", "cudnn-max-pool", WITH_MASK, "max"):
        return WindowMaximum(windows)
    if is_mean:
        return WindowAverage(windows, counts_padding=counts_padding)
    raise ConfigError(f"{layer}: pool_type '{kind}' is not known; known are max-projection and avg-projection")


def pool_windows(conf: PoolConfig, dimensions: int) -> ImageWindows:
    """Return the windows of a PoolConfig, over (y, x) or (z, y, x).

    Missing values for y default to the values for x.
    """

    def of_y(name: str, otherwise: int) -> int:
        return getattr(conf, name) if conf.HasField(name) else otherwise

    x = WindowAxis(conf.img_size, conf.output_x, conf.size_x, conf.stride, conf.padding)
    y = WindowAxis(
        of_y("img_size_y", conf.img_size),
        of_y("output_y", conf.output_x),
        of_y("size_y", conf.size_x),
        of_y("stride_y", conf.stride),
        of_y("padding_y", conf.padding),
    )
    z = WindowAxis(conf.img_size_z, conf.output_z, conf.size_z, conf.stride_z, conf.padding_z)
    return ImageWindows((z, y, x)[-dimensions:])


class PoolLayer(Layer):
    """Pools each window of each channel: (n, channels * pixels) -> (n, channels * windows).

    With max-pool-with-mask, the additional output `mask` holds the position of each value in its channel.
    """

    dimensions: ClassVar[int] = 2

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._conf = config.inputs[0].pool_conf
        self._windows = pool_windows(self._conf, self.dimensions)
        # v0.10 pools only planes, and its average counts the padding. Later versions added volumes, whose average does
        # not count the padding. Later versions also added exclude_mode: whether an average leaves out the padding.
        counts_padding = not self._conf.exclude_mode if self._conf.HasField("exclude_mode") else self.dimensions == 2
        self._pooling = make_pooling(self, self._conf.pool_type, self._windows, counts_padding=counts_padding)
        self.size = self._conf.channels * self._windows.places
        if config.size and config.size != self.size:
            raise ConfigError(f"{self} has size {config.size}, but its windows give {self.size} values")
        self._input: Argument
        self._values: Array
        self._out, self._gradient = Buffer(), Buffer()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the windows' values."""
        x = require_matrix(self, inputs[0], self._conf.channels * self._windows.pixels)
        self._input = inputs[0]
        images = x.reshape(-1, *self._windows.image)
        self._values = self._pooling.forward(images, self._out.take((len(images), *self._windows.grid), x.dtype))
        result = inputs[0].with_value(self._values.reshape(len(x), self.size))
        if self._conf.pool_type != WITH_MASK:
            return result
        mask = find_first_largest(images, self._windows, self._values).reshape(len(x), self.size)
        return Argument(value=result.value, starts=result.starts, sub_starts=result.sub_starts, extras={MASK: mask})

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the images."""
        x = self._input.value
        if x is None or not wanted[0]:
            return [None]
        images, out = x.reshape(-1, *self._windows.image), self._gradient.take(x.shape, x.dtype)
        self._pooling.backward(images, self._values, gradient.reshape(self._values.shape), out.reshape(images.shape))
        return [out]


class Pool3DLayer(PoolLayer):
    """Pooling over volumes, (channels, depth, height, width)."""

    dimensions = 3


class PyramidPoolLayer(Layer):
    """Spatial pyramid: level i pools each channel to 2^i x 2^i values; a row holds the levels one after the other."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = config.inputs[0].spp_conf
        self._channels, height, width = image_shape(conf.image_conf)
        levels = [
            ImageWindows((bin_axis(height, 2**level), bin_axis(width, 2**level)))
            for level in range(conf.pyramid_height)
        ]
        self._levels = [
            (windows, make_pooling(self, conf.pool_type, windows, counts_padding=True)) for windows in levels
        ]
        self._image = height, width
        self._x: Array
        self._values: list[Array] = []

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the values of all levels."""
        self._x = require_matrix(self, inputs[0], self._channels * self._image[0] * self._image[1])
        images = self._x.reshape(-1, *self._image)
        self._values = [
            pooling.forward(images, np.empty((len(images), *windows.grid), images.dtype))
            for windows, pooling in self._levels
        ]
        rows = [
            one.reshape(len(self._x), self._channels * windows.places)
            for one, (windows, _) in zip(self._values, self._levels, strict=True)
        ]
        return inputs[0].with_value(np.hstack(rows))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the images, which is the sum of the gradients of all levels."""
        images = self._x.reshape(-1, *self._image)
        total = np.zeros_like(self._x)
        start = 0
        for (windows, pooling), values in zip(self._levels, self._values, strict=True):
            stop = start + self._channels * windows.places
            part = pooling.backward(
                images, values, gradient[:, start:stop].reshape(values.shape), np.empty_like(images)
            )
            total += part.reshape(total.shape)
            start = stop
        return [total]


def bin_axis(length: int, bins: int) -> WindowAxis:
    """Return the windows that cut an axis into `bins` bins of equal size; half of the padding is before the image."""
    size = -(-length // bins)
    padding = (size * bins - length + 1) // 2
    return WindowAxis(length, (length - size + 2 * padding) // size + 1, size, size, padding)

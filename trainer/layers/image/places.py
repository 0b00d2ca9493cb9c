"""Layers that only move the values of images: pad, crop, rotate, switch_order, blockexpand, upsample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import BlockExpandConfig, LayerConfig, UpsampleConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix
from trainer.layers.image.pool import MASK
from trainer.layers.image.shape import image_shape, input_shape
from trainer.layers.image.windows import ImageWindows, WindowAxis, fold, unfold


class PadLayer(Layer):
    """Adds zeros around the images; pad_c, pad_h and pad_w are pairs (zeros before, zeros after) for one axis each."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = config.inputs[0].pad_conf
        self._shape = image_shape(conf.image_conf)
        pads = [tuple(one) if len(one) else (0, 0) for one in (conf.pad_c, conf.pad_h, conf.pad_w)]
        if any(len(one) != 2 for one in pads):
            raise ConfigError(f"{self}: pad_c, pad_h and pad_w must be pairs (zeros before, zeros after), not {pads}")
        self._pads = [(0, 0), *pads]
        self._inside = (
            slice(None),
            *(slice(before, before + n) for (before, _), n in zip(pads, self._shape, strict=True)),
        )

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the padded images."""
        x = require_matrix(self, inputs[0], int(np.prod(self._shape)))
        padded = np.pad(x.reshape(-1, *self._shape), self._pads)
        return inputs[0].with_value(_flatten(padded))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the unpadded part."""
        sizes = [n + before + after for n, (before, after) in zip(self._shape, self._pads[1:], strict=True)]
        return [_flatten(gradient.reshape(-1, *sizes)[self._inside])]


class CropLayer(Layer):
    """Returns a part of the images.

    The part is cut along `axis` (1 channels, 2 rows, 3 columns) and the later axes. The part begins at `offset`; its
    size is `shape` or the shape of a second input.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 2)
        if not 1 <= config.axis <= 3:
            raise ConfigError(f"{self}: axis {config.axis} is not one of 1 (channels), 2 (rows), 3 (columns)")
        self._shape = image_shape(config.inputs[0].image_conf)
        if len(config.offset) not in (1, 4 - config.axis):
            raise ConfigError(f"{self}: offset {list(config.offset)} has neither 1 nor {4 - config.axis} numbers")
        if len(config.inputs) == 1 and len(config.shape) != 4:
            raise ConfigError(f"{self}: shape {list(config.shape)} needs 4 numbers: samples, channels, rows, columns")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the selected part of every image."""
        x = require_matrix(self, inputs[0], int(np.prod(self._shape)))
        return inputs[0].with_value(_flatten(x.reshape(-1, *self._shape)[self._find_piece()]))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient inside the selected part, and zero elsewhere."""
        result: Array = np.zeros((len(gradient), *self._shape), gradient.dtype)
        piece = result[self._find_piece()]
        piece[:] = gradient.reshape(piece.shape)
        return [_flatten(result), None][: len(wanted)]

    def _find_piece(self) -> tuple[slice, ...]:
        config = self.config
        target = tuple(config.shape)[1:] if len(config.inputs) == 1 else input_shape(self, 1)
        offsets = list(config.offset) * (4 - config.axis if len(config.offset) == 1 else 1)
        piece = [slice(None)] * config.axis
        for axis, offset in zip(range(config.axis, 4), offsets, strict=True):
            stop = offset + target[axis - 1]
            if stop > self._shape[axis - 1]:
                many = self._shape[axis - 1]
                raise ConfigError(f"{self}: axis {axis} has {many} places, but the selected part ends at {stop}")
            piece.append(slice(offset, stop))
        return tuple(piece)


class RotateLayer(Layer):
    """Turns every map, `height` x `width`, by 90 degrees clockwise."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._map = int(config.height), int(config.width)
        if not all(self._map) or self.size % (self._map[0] * self._map[1]):
            raise ConfigError(f"{self}: its size {self.size} is no multiple of {self._map[0]} x {self._map[1]}")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the turned maps."""
        x = require_matrix(self, inputs[0], self.size)
        turned = np.rot90(x.reshape(-1, *self._map), k=-1, axes=(1, 2))
        return inputs[0].with_value(np.ascontiguousarray(turned).reshape(x.shape))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient, turned back."""
        turned = np.rot90(gradient.reshape(-1, *self._map[::-1]), axes=(1, 2))
        return [np.ascontiguousarray(turned).reshape(gradient.shape)]


class SwitchOrderLayer(Layer):
    """Changes the order of the values of an image from channels, height, width to height, width, channels.

    `reshape_conf` selects the axes (0 samples, 1 height, 2 width, 3 channels) that form the rows of the result.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._shape: tuple[int, int, int]
        self._row_axes = list(config.reshape_conf.height_axis) or [0]
        axes = [*self._row_axes, *config.reshape_conf.width_axis]
        if len(axes) > 1 and axes != [0, 1, 2, 3]:
            raise ConfigError(f"{self}: its reshape axes {axes} must be 0, 1, 2, 3 in order")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the rows in the order height, width, channels."""
        self._shape = turned_shape(self)
        x = require_matrix(self, inputs[0], int(np.prod(self._shape)))
        turned = x.reshape(-1, *self._shape).transpose(0, 2, 3, 1)
        rows = int(np.prod([turned.shape[axis] for axis in self._row_axes]))
        width = int(np.prod([turned.shape[axis] for axis in range(4) if axis not in self._row_axes]))
        value = np.ascontiguousarray(turned).reshape(rows, width)
        return inputs[0].with_value(value) if self._row_axes == [0] else Argument(value=value)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient in the order of the input."""
        channels, height, width = self._shape
        return [_flatten(gradient.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))]


def turned_shape(layer: Layer) -> tuple[int, int, int]:
    """Return (channels, height, width) of the images of a switch_order layer.

    The config language writes no image_conf, so the sizes are those of the input layer.
    """
    conf = layer.config.inputs[0].image_conf
    return image_shape(conf) if conf.channels else input_shape(layer, 0)


class BlockExpandLayer(Layer):
    """Turns each image into the sequence of its blocks.

    An output row holds the channels, rows and columns of a block.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._conf = config.inputs[0].block_expand_conf
        for name in ("block_x", "block_y", "stride_x", "stride_y"):
            if not getattr(self._conf, name):
                raise ConfigError(f"{self}: {name} is 0; it must be a positive integer")
        self._windows: ImageWindows

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the blocks, one sequence for each image."""
        conf, windows = self._conf, image_blocks(self, self._conf)
        x = require_matrix(self, inputs[0], conf.channels * windows.pixels)
        self._windows = windows
        columns: Array = np.empty((conf.channels, *windows.sizes, len(x), *windows.grid), x.dtype)
        unfold(x.reshape(-1, conf.channels, *windows.image), windows, columns)
        blocks = columns.transpose(3, 4, 5, 0, 1, 2).reshape(len(x) * windows.places, self._width(windows))
        return Argument(value=blocks, starts=np.arange(len(x) + 1) * windows.places)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return, for each pixel, the sum over the blocks that contain the pixel."""
        conf, windows = self._conf, self._windows
        blocks = gradient.reshape(-1, *windows.grid, conf.channels, *windows.sizes)
        images: Array = np.empty((len(blocks), conf.channels, *windows.image), gradient.dtype)
        fold(blocks.transpose(3, 4, 5, 0, 1, 2), windows, images)
        return [_flatten(images)]

    def _width(self, windows: ImageWindows) -> int:
        return self._conf.channels * windows.elements


def image_blocks(layer: Layer, conf: BlockExpandConfig) -> ImageWindows:
    """Return the blocks of the images of a blockexpand layer."""
    height, width = conf.img_size_y, conf.img_size_x
    if not (height and width):
        _, height, width = input_shape(layer, 0, conf.channels)
    return ImageWindows(
        (
            _block_axis(height, conf.block_y, conf.stride_y, conf.padding_y),
            _block_axis(width, conf.block_x, conf.stride_x, conf.padding_x),
        )
    )


class UpsampleLayer(Layer):
    """Puts the values of a pooled image back at the positions where pooling found the values, and zeros elsewhere.

    Inputs: the images, and the max-pool-with-mask layer whose mask holds the positions.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        conf = config.inputs[0].upsample_conf
        self._channels, height, width = image_shape(conf.image_conf)
        self._pooled = height * width
        self._pixels = count_upsampled(conf)
        self._places: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the larger images.

        Raises: ConfigError: the second input has no mask, or its mask reaches outside the larger images.
        """
        x = require_matrix(self, inputs[0], self._channels * self._pooled)
        mask = inputs[1].extras.get(MASK)
        if mask is None or mask.shape != x.shape:
            raise ConfigError(f"{self}: its second input must be a max-pool-with-mask layer of the first input's shape")
        self._places = mask.astype(np.intp).reshape(len(x) * self._channels, self._pooled)
        if self._places.size and self._places.max() >= self._pixels:
            raise ConfigError(f"{self}: the mask has place {self._places.max()}, but a map has {self._pixels} places")
        result: Array = np.zeros((len(self._places), self._pixels), x.dtype)
        np.put_along_axis(result, self._places, x.reshape(self._places.shape), axis=1)
        return inputs[0].with_value(result.reshape(len(x), self._channels * self._pixels))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient at the places of the mask."""
        rows = gradient.reshape(len(self._places), self._pixels)
        picked: Array = np.take_along_axis(rows, self._places, axis=1)
        return [picked.reshape(len(gradient), self._channels * self._pooled), None]


def count_upsampled(conf: UpsampleConfig) -> int:
    """Return the number of pixels of an upsampled map."""
    _, height, width = image_shape(conf.image_conf)
    x = conf.upsample_size if conf.HasField("upsample_size") else width * conf.scale - conf.pad_out_x
    y = conf.upsample_size_y if conf.HasField("upsample_size_y") else height * conf.scale_y - conf.pad_out_y
    return int(x * y)


def _flatten(images: Array) -> Array:
    """Return the images as contiguous rows."""
    return np.ascontiguousarray(images).reshape(len(images), int(np.prod(images.shape[1:])))


def _block_axis(length: int, size: int, stride: int, padding: int) -> WindowAxis:
    """Return the windows along an axis; the number of windows is rounded up."""
    return WindowAxis(length, 1 + -(-(length + 2 * padding - size) // stride), size, stride, padding)

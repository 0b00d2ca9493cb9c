"""Layers that compute with the values of pixels or small regions of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import LayerConfig, ROIPoolConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix
from trainer.layers.image.shape import image_shape, input_shape


class MaxOutLayer(Layer):
    """Returns, for each pixel, the largest value of every `groups` neighbouring channels.

    If several channels have the largest value, the first of these channels gets the gradient.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = config.inputs[0].maxout_conf
        self._shape = image_shape(conf.image_conf)
        self._groups = conf.groups
        if not self._groups or self._shape[0] % self._groups:
            raise ConfigError(f"{self}: {self._shape[0]} channels are no multiple of {self._groups} groups")
        self._winners: npt.NDArray[np.intp]

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the largest values."""
        channels, height, width = self._shape
        x = require_matrix(self, inputs[0], channels * height * width)
        split = x.reshape(len(x), channels // self._groups, self._groups, height * width)
        self._winners = split.argmax(axis=2)[:, :, None]
        return inputs[0].with_value(
            np.take_along_axis(split, self._winners, axis=2).reshape(len(x), x.shape[1] // self._groups)
        )

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient at the largest values, and zero elsewhere."""
        rows, channels, _, pixels = self._winners.shape
        result: Array = np.zeros((rows, channels, self._groups, pixels), gradient.dtype)
        np.put_along_axis(result, self._winners, gradient.reshape(self._winners.shape), axis=2)
        return [result.reshape(rows, channels * self._groups * pixels)]


class BilinearInterpolationLayer(Layer):
    """Images resized by linear interpolation; the corner pixels keep their values."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = config.inputs[0].bilinear_interp_conf
        self._shape = image_shape(conf.image_conf)
        self._rows = interpolation_matrix(self._shape[1], conf.out_size_y)
        self._columns = interpolation_matrix(self._shape[2], conf.out_size_x)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the interpolated images."""
        x = require_matrix(self, inputs[0], int(np.prod(self._shape)))
        images = x.reshape(-1, *self._shape[1:])
        result = self._rows.astype(x.dtype) @ images @ self._columns.T.astype(x.dtype)
        width = self._shape[0] * len(self._rows) * len(self._columns)
        return inputs[0].with_value(result.reshape(len(x), width))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient, distributed over the pixels from which each result was interpolated."""
        images = gradient.reshape(-1, len(self._rows), len(self._columns))
        result = self._rows.T.astype(gradient.dtype) @ images @ self._columns.astype(gradient.dtype)
        return [result.reshape(len(gradient), int(np.prod(self._shape)))]


class ScaleSubRegionLayer(Layer):
    """Multiplies one box of each image by a constant.

    Inputs: the images; for each image a row with the first and last channel, row and column of the box, counted from 1.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        conf = config.inputs[0].scale_sub_region_conf
        self._shape, self._factor = image_shape(conf.image_conf), conf.value
        self._factors: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the images, with the values in each box multiplied by the constant.

        Raises: DataError: a box is not inside the image.
        """
        x = require_matrix(self, inputs[0], int(np.prod(self._shape)))
        boxes = require_matrix(self, inputs[1], 6).astype(np.int64)
        inside = np.ones((len(x), 1, 1, 1), np.bool_)
        for axis, length in enumerate(self._shape):
            first, last = boxes[:, 2 * axis, None], boxes[:, 2 * axis + 1, None]
            if (first < 1).any() or (last < first).any() or (last > length).any():
                raise DataError(
                    f"{self}: a box is not inside 1..{length} on axis {axis} (0 channels, 1 rows, 2 columns)"
                )
            places = np.arange(1, length + 1)
            shape = [len(x), 1, 1, 1]
            shape[axis + 1] = length
            inside = inside & ((places >= first) & (places <= last)).reshape(shape)
        self._factors = np.where(inside, x.dtype.type(self._factor), x.dtype.type(1)).reshape(x.shape)
        return inputs[0].with_value(x * self._factors)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient, with the values in each box multiplied by the constant."""
        return [gradient * self._factors, None]


class RegionPoolLayer(Layer):
    """The largest values of regions of images.

    Each region is cut into pooled_height x pooled_width bins that may overlap.

    Inputs: the images; and a row for each region, which contains the index of its image in the batch, its first column,
    first row, last column and last row (further numbers are ignored). All positions are multiplied by spatial_scale.
    Result: a row for each region, with the largest value of each bin; an empty bin gives 0.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._conf = config.inputs[0].roi_pool_conf
        self._image_count = 0
        self._places: npt.NDArray[np.intp]  # index of each bin's largest value in the flat images; -1: the bin is empty

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the values of the regions.

        Raises: ConfigError: the regions have fewer than 5 columns. DataError: a region belongs to an image that is not
            in the batch.
        """
        shape = region_shape(self, self._conf)
        x = require_matrix(self, inputs[0], int(np.prod(shape)))
        regions = inputs[1].value
        if regions is None or regions.shape[1] < 5:
            raise ConfigError(f"{self}: its second input must be a dense layer of at least 5 columns")
        if len(regions) and not (regions[:, 0].min() >= 0 and regions[:, 0].max() < len(x)):
            raise DataError(f"{self}: a region belongs to an image that is not in the batch of {len(x)} images")
        self._image_count = len(x)
        numbers = np.arange(x.size).reshape(len(x), *shape)
        images = x.reshape(numbers.shape)
        bins = self._conf.pooled_height, self._conf.pooled_width
        self._places = np.full((len(regions), shape[0], *bins), -1, np.intp)
        for row, region in enumerate(regions):
            image = int(region[0])
            # as round() in C; numpy's rounds a half to the even number
            box = np.floor(region[1:5].astype(np.float64) * self._conf.spatial_scale + 0.5).astype(int)
            edges = _bin_edges(box[1], box[3], bins[0], shape[1]), _bin_edges(box[0], box[2], bins[1], shape[2])
            for i, (top, bottom) in enumerate(edges[0]):
                for j, (left, right) in enumerate(edges[1]):
                    part = images[image, :, top:bottom, left:right].reshape(shape[0], -1)
                    if part.shape[1]:
                        picked = numbers[image, :, top:bottom, left:right].reshape(part.shape)
                        self._places[row, :, i, j] = picked[np.arange(shape[0]), part.argmax(axis=1)]
        flat = self._places.reshape(len(regions), shape[0] * bins[0] * bins[1])
        return Argument(value=np.where(flat >= 0, x.reshape(-1).take(flat), x.dtype.type(0)))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient at the largest values; a pixel gets the sum over all bins in which it is the largest."""
        width = self.input_configs[0].size
        flat, found = self._places.reshape(-1), self._places.reshape(-1) >= 0
        sums = np.bincount(flat[found], gradient.reshape(-1)[found], self._image_count * width)
        return [sums.astype(gradient.dtype).reshape(self._image_count, width), None]


def region_shape(layer: Layer, conf: ROIPoolConfig) -> tuple[int, int, int]:
    """Return (channels, height, width) of the images of a roi_pool layer."""
    if not conf.HasField("height"):
        return input_shape(layer, 0)
    return layer.input_configs[0].size // (conf.height * conf.width), conf.height, conf.width


def interpolation_matrix(length: int, new_length: int) -> Array:
    """Return the matrix that interpolates `new_length` values linearly from `length` values and keeps both end values.

    Shapes: (new_length, length).
    """
    step = (length - 1) / (new_length - 1) if new_length > 1 else 0.0
    places = np.arange(new_length) * step
    low = np.minimum(places.astype(int), length - 1)
    high = np.minimum(low + 1, length - 1)
    result: Array = np.zeros((new_length, length))
    np.add.at(result, (np.arange(new_length), low), 1 - (places - low))
    np.add.at(result, (np.arange(new_length), high), places - low)
    return result


def _bin_edges(first: int, last: int, bins: int, length: int) -> list[tuple[int, int]]:
    """Cut the positions first..last into bins; return the begin and end of each bin, clipped to the image."""
    size = max(last - first + 1, 1) / bins
    edges = [(int(np.floor(i * size)) + first, int(np.ceil((i + 1) * size)) + first) for i in range(bins)]
    return [(min(max(begin, 0), length), min(max(end, 0), length)) for begin, end in edges]

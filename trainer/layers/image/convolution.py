"""Convolution as matrix products: one operand holds the windows of some images, side by side.

For many filters of 3 x 3 elements, Winograd's convolution is used; the operands of its matrix products are called
points (paddle_base/kernels/winograd.py).

The input of a convolution is called images, and its output is called maps. The transposed convolution swaps these
roles. One class therefore serves convolution and transposed convolution: it computes maps from images, images from
maps, and the gradient of the filters from images and maps.

Filters are not flipped (cross-correlation). Flat filters have the shape (groups, filters / groups,
channels / groups * elements of a window); group i of the filters reads group i of the channels.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from paddle_base.kernels import winograd
from paddle_base.proto.ModelConfig_pb2 import ConvConfig
from trainer.arrays.arguments import Array
from trainer.layers.image.windows import ImageWindows, WindowAxis, fold, unfold
from trainer.layers.workspace import Buffer

# bytes of unfolded windows and maps that are processed at a time; they fit into the second-level cache
CHUNK_BYTES = 1 << 21
POINT_BYTES = 1 << 21  # bytes of the points of images and maps that are processed at a time
# Minimum number of channels, and of filters, for Winograd's convolution. With fewer, the transforms of images, filters
# and maps take most of the time that the saved multiplications would take.
LEAST_CHANNELS = 32


class Convolution:
    """Computes maps (n, filters, *grid) from images (n, channels, *image), and images from maps.

    Images and maps may be given as flat rows.

    Args: windows: the windows of the image to which a filter is applied.
    """

    def __init__(self, windows: ImageWindows, channels: int, filters: int, groups: int = 1) -> None:
        self.windows, self.channels, self.filters, self.groups = windows, channels, filters, groups
        self.weights = filters * (channels // groups) * windows.elements
        self.image_size = channels * windows.pixels
        self.map_size = filters * windows.places
        self._columns, self._maps, self._sum, self._part = Buffer(), Buffer(), Buffer(), Buffer()

    def to_maps(self, images: Array, w: Array, out: Array, bias: Array | None = None) -> Array:
        """Write the result of each filter for each window to `out`, (n, map_size), and return `out`.

        Args: bias: a number for each filter, which is added to the filter's results.
        """
        shift = None if bias is None else bias.reshape(self.groups, self.filters // self.groups, 1, 1)
        filters = self._split_filters(w)
        for chunk in self._chunks(len(images), images.itemsize):
            part = self._split_maps(out[chunk])
            products = self._maps.take((self.groups, part.shape[1], part.shape[2] * part.shape[3]), out.dtype)
            np.matmul(filters, self._unfold(images[chunk]), out=products)
            if shift is None:
                part[:] = products.reshape(part.shape)
            else:
                np.add(products.reshape(part.shape), shift, out=part)
        return out

    def to_images(self, maps: Array, w: Array, out: Array) -> Array:
        """Write the sums of the filters times the values of the maps to `out`, (n, image_size), and return `out`."""
        filters = self._split_filters(w).swapaxes(1, 2)
        for chunk in self._chunks(len(maps), maps.itemsize):
            images = out[chunk].reshape(-1, self.channels, *self.windows.image)
            columns = self._take_columns(len(images), out)
            np.matmul(filters, self._pack_maps(maps[chunk]), out=columns.reshape(self._column_shape(len(images))))
            fold(columns, self.windows, images)
        return out

    def gradient(self, images: Array, maps: Array) -> Array:
        """Return the gradient of the filters, (groups, filters / groups, elements), from the gradient of the maps.

        The next call overwrites the returned array.
        """
        shape = (self.groups, self.filters // self.groups, self.weights // self.filters)
        total = self._sum.take(shape, maps.dtype)
        into = total
        for number, chunk in enumerate(self._chunks(len(images), images.itemsize)):
            if number:
                into = self._part.take(shape, maps.dtype)
            np.matmul(self._pack_maps(maps[chunk]), self._unfold(images[chunk]).swapaxes(1, 2), out=into)
            if number:
                total += into
        if not len(images):
            total.fill(0)
        return total

    def _chunks(self, count: int, itemsize: int) -> Iterator[slice]:
        bytes_each = (self.channels * self.windows.elements + self.filters) * self.windows.places * itemsize
        step = max(1, CHUNK_BYTES // max(1, bytes_each))
        for start in range(0, count, step):
            yield slice(start, start + step)

    def _split_filters(self, w: Array) -> Array:
        return w.reshape(self.groups, self.filters // self.groups, -1)

    def _split_maps(self, maps: Array) -> Array:
        """Return a view of shape (groups, filters / groups, n, places)."""
        return maps.reshape(-1, self.groups, self.filters // self.groups, self.windows.places).transpose(1, 2, 0, 3)

    def _pack_maps(self, maps: Array) -> Array:
        """Return a copy of shape (groups, filters / groups, n * places)."""
        split = self._split_maps(maps)
        packed = self._maps.take(split.shape, maps.dtype)
        packed[:] = split
        return packed.reshape(*split.shape[:2], -1)

    def _take_columns(self, count: int, like: Array) -> Array:
        return self._columns.take((self.channels, *self.windows.sizes, count, *self.windows.grid), like.dtype)

    def _column_shape(self, count: int) -> tuple[int, int, int]:
        return self.groups, self.weights // self.filters, count * self.windows.places

    def _unfold(self, images: Array) -> Array:
        """Return the elements of all windows, (groups, channels / groups * elements, n * places)."""
        columns = self._take_columns(len(images), images)
        unfold(images.reshape(-1, self.channels, *self.windows.image), self.windows, columns)
        return columns.reshape(self._column_shape(len(images)))


class PointBuffers(threading.local):
    """The buffers of all convolutions of a thread; the contents are valid during one call of one convolution."""

    def __init__(self) -> None:
        self.images, self.maps, self.filters, self.sum, self.part = Buffer(), Buffer(), Buffer(), Buffer(), Buffer()


_buffers = PointBuffers()


class WinogradConvolution(Convolution):
    """A convolution of stride 1 with filters of 3 x 3 elements, by Winograd's method, for float32."""

    def __init__(self, windows: ImageWindows, channels: int, filters: int) -> None:
        super().__init__(windows, channels, filters)
        y, x = windows.axes
        self._tiles = winograd.Tiles((y.length, x.length), (y.windows, x.windows), y.padding)
        # The points of the images and maps of a chunk take at most max(bytes of the filters' points, POINT_BYTES).
        # A chunk has at least one image. Each chunk reads the points of all filters again, so few chunks are faster.
        weights = winograd.POINTS * filters * channels * 4
        bytes_each = winograd.POINTS * (channels + filters) * self._tiles.count * 4
        self._step = max(1, max(POINT_BYTES, weights) // bytes_each)

    def to_maps(self, images: Array, w: Array, out: Array, bias: Array | None = None) -> Array:
        """Write the result of each filter for each window to `out`, and return `out`."""
        if not winograd.suits(images, w, out, bias):
            return super().to_maps(images, w, out, bias)
        filters = self._filter_points(w)
        for chunk in self._parts(len(images)):
            products = self._take(_buffers.maps, self.filters, len(images[chunk]))
            np.matmul(filters, self._image_points(images[chunk]), out=products)
            winograd.points_to_maps(products, self._tiles, bias, out[chunk])
        return out

    def to_images(self, maps: Array, w: Array, out: Array) -> Array:
        """Write the sums of the filters times the values of the maps to `out`, and return `out`."""
        if not winograd.suits(maps, w, out):
            return super().to_images(maps, w, out)
        filters = self._filter_points(w).swapaxes(1, 2)
        for chunk in self._parts(len(maps)):
            products = self._take(_buffers.images, self.channels, len(maps[chunk]))
            np.matmul(filters, self._map_points(maps[chunk]), out=products)
            winograd.points_to_images(products, self._tiles, out[chunk])
        return out

    def gradient(self, images: Array, maps: Array) -> Array:
        """Return the gradient of the filters from the gradient of the maps; the next call overwrites the result."""
        if not len(images) or not winograd.suits(images, maps):
            return super().gradient(images, maps)
        shape = (winograd.POINTS, self.filters, self.channels)
        total = into = _buffers.sum.take(shape, maps.dtype)
        for chunk in self._parts(len(images)):
            np.matmul(self._map_points(maps[chunk]), self._image_points(images[chunk]).swapaxes(1, 2), out=into)
            if into is not total:
                total += into
            into = _buffers.part.take(shape, maps.dtype)
        result = self._sum.take((1, self.filters, self.weights // self.filters), maps.dtype)
        winograd.points_to_filters(total, result)
        return result

    def _parts(self, count: int) -> Iterator[slice]:
        for start in range(0, count, self._step):
            yield slice(start, start + self._step)

    def _take(self, buffer: Buffer, channels: int, count: int) -> Array:
        return buffer.take((winograd.POINTS, channels, count * self._tiles.count), np.float32)

    def _filter_points(self, w: Array) -> Array:
        points = _buffers.filters.take((winograd.POINTS, self.filters, self.channels), w.dtype)
        winograd.filters_to_points(w, points)
        return points

    def _image_points(self, images: Array) -> Array:
        points = self._take(_buffers.images, self.channels, len(images))
        winograd.images_to_points(images, self._tiles, points)
        return points

    def _map_points(self, maps: Array) -> Array:
        points = self._take(_buffers.maps, self.filters, len(maps))
        winograd.maps_to_points(maps, self._tiles, points)
        return points


def make_convolution(windows: ImageWindows, channels: int, filters: int, groups: int = 1) -> Convolution:
    """Return the fastest convolution for these windows."""
    if groups == 1 and min(channels, filters) >= LEAST_CHANNELS and _suits_tiles(windows.axes):
        return WinogradConvolution(windows, channels, filters)
    return Convolution(windows, channels, filters, groups)


def _suits_tiles(axes: tuple[WindowAxis, ...]) -> bool:
    """Return whether Winograd's convolution can be used.

    Winograd's convolution needs windows of 3 x 3 adjacent elements. The windows must fill at least half of the computed
    tiles.
    """
    if len(axes) != 2 or axes[0].padding != axes[1].padding:
        return False
    if any((axis.size, axis.stride, axis.dilation) != (3, 1, 1) for axis in axes):
        return False
    y, x = axes
    tiles = winograd.Tiles((y.length, x.length), (y.windows, x.windows), y.padding)
    return tiles.count * winograd.TILE**2 <= 2 * y.windows * x.windows


def conv_windows(conf: ConvConfig, dimensions: int) -> ImageWindows:
    """Return the windows of a ConvConfig, over (y, x) or (z, y, x).

    For a transposed convolution, the windows are over the image that the convolution produces.
    """
    x = WindowAxis(conf.img_size, conf.output_x, conf.filter_size, conf.stride, conf.padding, conf.dilation)
    y = WindowAxis(
        conf.img_size_y if conf.HasField("img_size_y") else conf.img_size,
        conf.output_y if conf.HasField("output_y") else conf.output_x,
        conf.filter_size_y,
        conf.stride_y,
        conf.padding_y,
        conf.dilation_y,
    )
    z = WindowAxis(conf.img_size_z, conf.output_z, conf.filter_size_z, conf.stride_z, conf.padding_z)
    return ImageWindows((z, y, x)[-dimensions:])

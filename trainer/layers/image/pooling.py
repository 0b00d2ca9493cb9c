"""Pooling of images, one axis after the other.

The maximum of a window is the maximum of the maxima of its rows, and the sum of a window is the sum of the sums of its
rows. Each axis can therefore be pooled separately. Windows are clipped at the edges of the image. Padding is ignored,
except by an average that counts the padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from paddle_base.kernels.images import find_largest, spread_largest
from trainer.arrays.arguments import Array
from trainer.layers.image.windows import ImageWindows, WindowAxis
from trainer.layers.workspace import Buffer

# bytes of the images that are pooled at a time; the result of the first axis then stays in the cache
CHUNK_BYTES = 1 << 19


class Pooling:
    """Pools images, (n, *image), to one value for each window, (n, *grid), and computes the gradient of the images.

    A subclass defines the step for one axis.
    """

    def __init__(self, windows: ImageWindows) -> None:
        self.windows = windows
        self._between = [Buffer() for _ in windows.axes]
        self._flows = [Buffer() for _ in windows.axes]

    def forward(self, images: Array, out: Array) -> Array:
        """Write the value of each window to `out`, and return `out`."""
        for chunk in self._chunks(images):
            *_, last = self._climb(images[chunk], len(self.windows.axes) - 1)
            self.pool(self.windows.axes[-1], last, out[chunk].reshape(*last.shape[:1], -1, 1))
        return out

    def backward(self, images: Array, values: Array, gradient: Array, out: Array) -> Array:
        """Write the gradient of the images to `out`, computed from the gradient of the values, and return `out`."""
        for chunk in self._chunks(images):
            inputs = self._climb(images[chunk], len(self.windows.axes) - 1)
            outputs = [*inputs[1:], values[chunk]]
            flow = gradient[chunk]
            for level in reversed(range(len(inputs))):
                x = inputs[level]
                target = self._flows[level].take(x.shape, x.dtype) if level else out[chunk].reshape(x.shape)
                shape = len(x), self.windows.grid[level], x.shape[2]
                self.spread(self.windows.axes[level], x, outputs[level].reshape(shape), flow.reshape(shape), target)
                flow = target
        return out

    def pool(self, axis: WindowAxis, x: Array, y: Array) -> None:
        """Write the value of each window along the axis to y. Shapes: x: (any, length, any), y: (any, windows, any)."""
        raise NotImplementedError

    def spread(self, axis: WindowAxis, x: Array, y: Array, gradient: Array, out: Array) -> None:
        """Write the gradient of x to `out`, from the gradient of y."""
        raise NotImplementedError

    def _chunks(self, images: Array) -> Iterator[slice]:
        step = max(1, CHUNK_BYTES // max(1, self.windows.pixels * images.itemsize))
        for start in range(0, len(images), step):
            yield slice(start, start + step)

    def _climb(self, images: Array, levels: int) -> list[Array]:
        """Return the array that is pooled along each axis, viewed as (any, length, any).

        All arrays after the first are in buffers.
        """
        grid, image = self.windows.grid, self.windows.image
        x = images.reshape(len(images), image[0], -1)
        inputs = [x]
        for level in range(levels):
            y = self._between[level].take((len(x), grid[level], x.shape[2]), x.dtype)
            self.pool(self.windows.axes[level], x, y)
            x = y.reshape(len(x) * grid[level], image[level + 1], -1)
            inputs.append(x)
        return inputs


class WindowMaximum(Pooling):
    """The largest value of each window. As in v0.10, all largest values get the gradient of the window."""

    def forward(self, images: Array, out: Array) -> Array:
        """Write the largest values to `out`, and return `out`."""
        if len(self.windows.axes) == 2 and find_largest(out, images, *(axis.numbers for axis in self.windows.axes)):
            return out
        return super().forward(images, out)

    def backward(self, images: Array, values: Array, gradient: Array, out: Array) -> Array:
        """Write the gradient of the images to `out`, and return `out`."""
        axes = [axis.numbers for axis in self.windows.axes]
        if len(axes) == 2 and spread_largest(out, images, values, gradient, *axes):
            return out
        return super().backward(images, values, gradient, out)

    def pool(self, axis: WindowAxis, x: Array, y: Array) -> None:
        """Write the largest values to y."""
        spans = [axis.span(element) for element in range(axis.size)]
        if spans[0][0] == slice(0, axis.windows):
            y[:] = x[:, spans.pop(0)[1]]
        else:
            y.fill(-np.inf)
        for windows, places in spans:
            np.maximum(y[:, windows], x[:, places], out=y[:, windows])

    def spread(self, axis: WindowAxis, x: Array, y: Array, gradient: Array, out: Array) -> None:
        """Write to `out` the gradient of each window at the places of its largest value."""
        out.fill(0)
        for element in range(axis.size):
            windows, places = axis.span(element)
            is_largest = x[:, places] == y[:, windows]
            if axis.stride >= axis.size:
                np.multiply(gradient[:, windows], is_largest, out=out[:, places])
            else:
                out[:, places] += gradient[:, windows] * is_largest


class WindowAverage(Pooling):
    """The mean of each window.

    Args: counts_padding: whether places in the padding count as zeros; if false, the mean leaves out these places.
    """

    def __init__(self, windows: ImageWindows, *, counts_padding: bool = False) -> None:
        super().__init__(windows)
        counts = [np.array(axis.counts(with_padding=counts_padding), np.float64) for axis in windows.axes]
        self._shares: Array = 1 / reduce(np.multiply.outer, counts)  # (*grid)

    def forward(self, images: Array, out: Array) -> Array:
        """Write the means to `out`, and return `out`."""
        super().forward(images, out)
        out *= self._shares.astype(out.dtype)
        return out

    def backward(self, images: Array, values: Array, gradient: Array, out: Array) -> Array:
        """Write the gradient of the images to `out`, and return `out`."""
        return super().backward(images, values, gradient * self._shares.astype(gradient.dtype), out)

    def pool(self, axis: WindowAxis, x: Array, y: Array) -> None:
        """Write the sums to y."""
        y.fill(0)
        for element in range(axis.size):
            windows, places = axis.span(element)
            y[:, windows] += x[:, places]

    def spread(self, axis: WindowAxis, x: Array, y: Array, gradient: Array, out: Array) -> None:
        """Write to `out` the gradient of each window at every place of the window."""
        out.fill(0)
        for element in range(axis.size):
            windows, places = axis.span(element)
            out[:, places] += gradient[:, windows]


def find_first_largest(images: Array, windows: ImageWindows, values: Array) -> Array:
    """Return, for each window, the place of its first largest value in the flat image, as a floating-point number.

    Shapes: images: (n, *image); values: (n, *grid), the largest values; result: like values.
    """
    places = np.arange(windows.pixels).reshape(windows.image)
    result: Array = np.full(values.shape, -1, values.dtype)
    for _, there, where in reversed(windows.spans):  # in reverse order, so that the first largest value is written last
        found = images[(slice(None), *where)] == values[(slice(None), *there)]
        np.copyto(result[(slice(None), *there)], places[where], where=found, casting="unsafe")
    return result


def find_empty_window(axes: Sequence[WindowAxis], *, with_padding: bool) -> WindowAxis | None:
    """Return the first axis that has a window without any place inside the image, or the padded image; or None."""
    return next((axis for axis in axes if min(axis.counts(with_padding=with_padding), default=1) <= 0), None)

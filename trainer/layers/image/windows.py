"""Sliding windows over images with any number of axes: the places of elements, and copies from and to images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from paddle_base.kernels import images
from trainer.arrays.arguments import Array

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class WindowAxis:
    """One axis of an image, and the windows along the axis; window number o begins at o * stride - padding.

    Args: length: length of the image.  windows: number of windows; the last window may reach beyond the padded image.
    size: elements of a window.  dilation: distance between two elements.
    """

    length: int
    windows: int
    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def numbers(self) -> tuple[int, int, int, int, int, int]:
        """The numbers that describe the axis, in the order that the compiled loops require."""
        return self.length, self.windows, self.size, self.stride, self.padding, self.dilation

    def span(self, element: int) -> tuple[slice, slice]:
        """Return the windows whose element number `element` is inside the image, and the places of these elements."""
        shift = element * self.dilation - self.padding
        first = max(0, -(shift // self.stride))
        last = min(self.windows, (self.length - 1 - shift) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        begin = first * self.stride + shift
        return slice(first, last), slice(begin, begin + (last - first - 1) * self.stride + 1, self.stride)

    def counts(self, *, with_padding: bool) -> list[int]:
        """Return how many elements each (undilated) window has inside the image, or inside the padded image."""
        margin = self.padding if with_padding else 0
        begins = [window * self.stride - self.padding for window in range(self.windows)]
        return [min(begin + self.size, self.length + margin) - max(begin, -margin) for begin in begins]


@dataclass(frozen=True)
class ImageWindows:
    """The windows over an image with the given axes, the outermost axis first."""

    axes: tuple[WindowAxis, ...]

    @cached_property
    def image(self) -> tuple[int, ...]:
        """The shape of the image."""
        return tuple(axis.length for axis in self.axes)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The number of windows along each axis."""
        return tuple(axis.windows for axis in self.axes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The elements of a window along each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def pixels(self) -> int:
        """The number of values of an image."""
        return math.prod(self.image)

    @property
    def places(self) -> int:
        """The number of windows."""
        return math.prod(self.grid)

    @property
    def elements(self) -> int:
        """The number of elements of a window."""
        return math.prod(self.sizes)

    @cached_property
    def spans(self) -> list[tuple[tuple[int, ...], Slices, Slices]]:
        """For each element of a window: its index, some windows, and places.

        The windows are those whose element with this index is inside the image. The places are the positions of these
        elements in the image.
        """
        return list(self._find_spans())

    def _find_spans(self) -> Iterator[tuple[tuple[int, ...], Slices, Slices]]:
        for index in itertools.product(*map(range, self.sizes)):
            pairs = [axis.span(element) for axis, element in zip(self.axes, index, strict=True)]
            yield index, tuple(windows for windows, _ in pairs), tuple(places for _, places in pairs)

    @cached_property
    def reach_out(self) -> bool:
        """Whether a window has elements outside the image."""
        whole = tuple(slice(0, windows) for windows in self.grid)
        return any(windows != whole for _, windows, _ in self.spans)


def unfold(pixels: Array, windows: ImageWindows, out: Array) -> None:
    """Copy every element of every window to `out`; elements outside the image are 0.

    Shapes: pixels: (n, channels, *image); out: (channels, *sizes, n, *grid).
    """
    if windows.reach_out:
        out.fill(0)
    turned = pixels.swapaxes(0, 1)
    for index, there, places in windows.spans:
        out[_in_columns(index, there)] = turned[_in_images(places)]


def fold(columns: Array, windows: ImageWindows, out: Array) -> None:
    """For every value of the images, add up the window elements that cover the value (the transpose of `unfold`).

    Shapes: columns: (channels, *sizes, n, *grid); out: (n, channels, *image).
    """
    if len(windows.axes) == 2 and images.fold(out, columns, *(axis.numbers for axis in windows.axes)):
        return
    out.fill(0)
    turned = out.swapaxes(0, 1)
    for index, there, places in windows.spans:
        turned[_in_images(places)] += columns[_in_columns(index, there)]


def _in_images(places: Slices) -> Slices:
    return slice(None), slice(None), *places


def _in_columns(index: tuple[int, ...], windows: Slices) -> tuple[int | slice, ...]:
    return slice(None), *index, slice(None), *windows

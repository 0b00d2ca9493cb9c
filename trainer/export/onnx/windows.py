"""Convolutions and poolings with the windows of v0.10, which may reach beyond the padded image. No I/O.

A window of ONNX begins at o * stride - padding, too, and the padding behind the image says how many windows there are.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from trainer.arrays.arguments import Array
from trainer.export.onnx.graph import FLOAT, Graph
from trainer.export.onnx.registry import CannotExportError
from trainer.layers.image.windows import ImageWindows, WindowAxis

LOWEST = float(np.finfo(np.float32).min)


def _reach(axis: WindowAxis) -> int:
    """Return how far the last window reaches beyond the image; negative if it ends before the image does."""
    return (axis.windows - 1) * axis.stride + (axis.size - 1) * axis.dilation + 1 - axis.padding - axis.length


def _pads(windows: ImageWindows) -> list[int]:
    return [*(axis.padding for axis in windows.axes), *(max(0, _reach(axis)) for axis in windows.axes)]


def _kernel(windows: ImageWindows) -> dict[str, Any]:
    return {"kernel_shape": list(windows.sizes), "strides": [axis.stride for axis in windows.axes]}


def _dilations(windows: ImageWindows) -> dict[str, Any]:
    dilations = [axis.dilation for axis in windows.axes]
    return {"dilations": dilations} if set(dilations) != {1} else {}


def cut(graph: Graph, images: str, extents: tuple[int, ...], found: list[int]) -> str:
    """Return the first `extents` places of the last axes of images that have `found` places."""
    if list(extents) == found:
        return images
    axes = list(range(2, 2 + len(extents)))
    return graph.add(
        "Slice", images, graph.integers([0] * len(axes)), graph.integers(extents), graph.integers(axes), word="cut"
    )


def _count(axis: WindowAxis, behind: int) -> int:
    """Return how many windows ONNX finds along an axis with `behind` places of padding behind the image."""
    span = (axis.size - 1) * axis.dilation + 1
    return (axis.length + axis.padding + behind - span) // axis.stride + 1


def convolve(graph: Graph, images: str, weight: str, bias: str, windows: ImageWindows, groups: int) -> str:
    """Return the maps of filters over images.

    Shapes: images: [n, channels, *image]; weight: [filters, channels / groups, *sizes]; bias: [filters], or "".
    """
    pads = _pads(windows)
    inputs = [images, weight, bias] if bias else [images, weight]
    maps = graph.add("Conv", *inputs, pads=pads, group=groups, **_kernel(windows), **_dilations(windows))
    behind = pads[len(windows.axes) :]
    return cut(graph, maps, windows.grid, [_count(axis, one) for axis, one in zip(windows.axes, behind, strict=True)])


def convolve_back(graph: Graph, maps: str, weight: str, bias: str, windows: ImageWindows, groups: int) -> str:
    """Return images from maps: the transpose of `convolve`.

    Shapes: maps: [n, filters, *grid]; weight: [filters, channels / groups, *sizes]; bias: [channels], or "".
    """
    reaches = [_reach(axis) for axis in windows.axes]
    inputs = [maps, weight, bias] if bias and min(reaches) >= 0 else [maps, weight]
    images = graph.add(
        "ConvTranspose", *inputs, pads=_pads(windows), group=groups, **_kernel(windows), **_dilations(windows)
    )
    if min(reaches) < 0:  # places that no window reaches
        pads = [0] * (4 + len(reaches)) + [max(0, -reach) for reach in reaches]
        images = graph.add("Pad", images, graph.integers(pads), graph.constant(0))
        if bias:
            images = graph.add("Add", images, graph.reshape(bias, [-1, *[1] * len(reaches)]))
    return images


def pool_largest(graph: Graph, images: str, windows: ImageWindows, *, with_mask: bool = False) -> tuple[str, str]:
    """Return the largest value of each window, and, with a mask, its place in its channel as a float.

    Raises: CannotExportError: there is a mask, and the padding is as large as a window.
    """
    pads, sizes = _pads(windows), windows.sizes
    behind = pads[len(sizes) :]
    if any(one >= size for one, size in zip(pads, [*sizes, *sizes], strict=True)):
        if with_mask:
            raise CannotExportError("its padding is as large as its windows, and it gives a mask")
        many = len(sizes)
        images = graph.add(
            "Pad", images, graph.integers([0, 0, *pads[:many], 0, 0, *pads[many:]]), graph.constant(LOWEST)
        )
        pads = [0] * (2 * many)
    found = [_count(axis, one) for axis, one in zip(windows.axes, behind, strict=True)]
    if not with_mask:
        return cut(graph, graph.add("MaxPool", images, pads=pads, **_kernel(windows)), windows.grid, found), ""
    values, places = graph.add_several("MaxPool", images, outputs=2, pads=pads, **_kernel(windows))
    places = graph.add("Mod", places, graph.integers(windows.pixels))
    values, places = (cut(graph, one, windows.grid, found) for one in (values, places))
    return values, graph.cast(places, FLOAT)


def pool_mean(graph: Graph, images: str, windows: ImageWindows, *, counts_padding: bool) -> str:
    """Return the mean of each window; the padding counts as zeros, or is left out."""
    many, pads = len(windows.axes), _pads(windows)
    if any(pads):
        images = graph.add("Pad", images, graph.integers([0, 0, *pads[:many], 0, 0, *pads[many:]]), graph.constant(0))
    found = [_count(axis, one) for axis, one in zip(windows.axes, pads[many:], strict=True)]
    means = cut(graph, graph.add("AveragePool", images, **_kernel(windows)), windows.grid, found)
    counts = [np.array(axis.counts(with_padding=counts_padding), np.float64) for axis in windows.axes]
    factors: Array = windows.elements / reduce(np.multiply.outer, counts)
    return means if (factors == 1).all() else graph.add("Mul", means, graph.constant(factors))


def unfold(graph: Graph, rows: str, channels: int, windows: ImageWindows) -> str:
    """Return the elements of all windows of images; an element outside its image is 0.

    Shapes: rows: [n, channels * pixels] -> [n, channels * elements, places].
    """
    size = channels * windows.pixels
    places = np.full((channels, *windows.sizes, *windows.grid), size)
    numbers = np.arange(size).reshape(channels, *windows.image)
    for index, there, where in windows.spans:
        element: tuple[Any, ...] = (slice(None), *index, *there)
        places[element] = numbers[(slice(None), *where)]
    return graph.take(_with_zero(graph, rows, 2), places.reshape(channels * windows.elements, windows.places))


def fold(graph: Graph, columns: str, channels: int, windows: ImageWindows) -> str:
    """Return images whose pixels are the sums of all elements at their place: the transpose of `unfold`.

    Shapes: columns: [n, channels * elements, places] -> [n, channels * pixels].
    """
    numbers = np.arange(windows.elements * windows.places).reshape(*windows.sizes, *windows.grid)
    found: list[list[int]] = [[] for _ in range(windows.pixels)]
    pixels = np.arange(windows.pixels).reshape(windows.image)
    for index, there, where in windows.spans:
        element: tuple[Any, ...] = (*index, *there)
        sources = numbers[element].reshape(-1).tolist()
        for pixel, source in zip(pixels[where].reshape(-1).tolist(), sources, strict=True):
            found[pixel].append(source)
    many, none = max(1, *(len(one) for one in found)), windows.elements * windows.places
    taken = np.array([one + [none] * (many - len(one)) for one in found])
    flat = graph.reshape(columns, [0, channels, none])
    sums = graph.add("ReduceSum", graph.take(_with_zero(graph, flat, 3), taken), axes=[-1], keepdims=0)
    return graph.reshape(sums, [0, channels * windows.pixels])


def _with_zero(graph: Graph, tensor: str, rank: int) -> str:
    """Return a tensor of `rank` dimensions with a zero behind the last one."""
    return graph.add("Pad", tensor, graph.integers([0] * (2 * rank - 1) + [1]), graph.constant(0))

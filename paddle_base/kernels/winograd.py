"""Winograd's convolution F(4 x 4, 3 x 3), which needs a quarter of the multiplications of the direct convolution.

A tile of 4 x 4 results needs a window of 6 x 6 pixels. One transform turns a window into values at 36 points, and
another transform turns a filter into values at these points. A convolution is a product of the values at the points. A
third transform turns the sums of the products over the channels into tiles. The gradients are the transposes of these
transforms.
Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016. The points +-sqrt(1/2) and +-sqrt(2)
give smaller rounding errors than the points +-1 and +-2 of that paper.

Shapes: the points of n images are (36, channels, n * tiles of an image).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]

TILE, POINTS = 4, 36
_P, _Q = math.sqrt(0.5), math.sqrt(2)
_FILTER = np.array(
    [[1, 0, 0]]
    + [[-2 / 3, -2 / 3 * p, -1 / 3] for p in (_P, -_P)]
    + [[1 / 6, q / 6, 1 / 3] for q in (_Q, -_Q)]
    + [[0, 0, 1]]
)
FILTER = np.kron(_FILTER, _FILTER).astype(np.float32)  # (36, 9); FILTER times a filter gives its values at the points


@dataclass(frozen=True)
class Tiles:
    """The tiles of a convolution of stride 1 whose filters have 3 x 3 elements.

    Attributes: image: height and width of the images. grid: height and width of the results. padding: pixels of zeros
        around an image.
    """

    image: tuple[int, int]
    grid: tuple[int, int]
    padding: int

    @property
    def rows(self) -> int:
        """The number of tiles from top to bottom."""
        return -(-self.grid[0] // TILE)

    @property
    def columns(self) -> int:
        """The number of tiles from left to right."""
        return -(-self.grid[1] // TILE)

    @property
    def count(self) -> int:
        """The number of tiles of an image."""
        return self.rows * self.columns


def suits(*arrays: Array | None) -> bool:
    """Return whether this module takes these arrays. For other arrays the caller must use products of windows."""
    return compiled is not None and fits(*arrays)


def filters_to_points(filters: Array, out: Array) -> None:
    """Write the filters, transformed to points, to `out`.

    Shapes: filters: (filters, channels, 9); out: (36, filters, channels).
    """
    np.matmul(FILTER, filters.reshape(-1, 9).T, out=out.reshape(POINTS, -1))


def points_to_filters(points: Array, out: Array) -> None:
    """Apply the transpose of `filters_to_points` to the points. Shapes: see `filters_to_points`."""
    np.matmul(points.reshape(POINTS, -1).T, FILTER, out=out.reshape(-1, 9))


def images_to_points(images: Array, tiles: Tiles, out: Array) -> None:
    """Write the windows of the images, transformed to points, to `out`.

    Shapes: images: (n, channels * pixels); out: (36, channels, n * tiles).
    """
    _run("tile_windows", (out, images), out.shape[1], tiles.image, tiles, tiles.padding)


def points_to_images(points: Array, tiles: Tiles, out: Array) -> None:
    """Apply the transpose of `images_to_points` to the points. Shapes: see `images_to_points`."""
    _run("tile_windows_gradient", (out, points), points.shape[1], tiles.image, tiles, tiles.padding)


def points_to_maps(points: Array, tiles: Tiles, bias: Array | None, out: Array) -> None:
    """Write the tiles of results, plus the bias, to `out`.

    Shapes: points: (36, filters, n * tiles); bias: (filters,); out: (n, filters * pixels of a map).
    """
    _run("tile_maps", (out, points, bias), points.shape[1], tiles.grid, tiles, 0)


def maps_to_points(maps: Array, tiles: Tiles, out: Array) -> None:
    """Apply the transpose of `points_to_maps` to the maps, without a bias. Shapes: see `points_to_maps`."""
    _run("tile_maps_gradient", (out, maps), out.shape[1], tiles.grid, tiles, 0)


def _run(
    name: str, arrays: tuple[Array | None, ...], channels: int, plane: tuple[int, int], tiles: Tiles, padding: int
) -> None:
    getattr(compiled, name)(*arrays, channels, *plane, tiles.rows, tiles.columns, padding)

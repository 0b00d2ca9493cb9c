"""Kernels for images: windows over planes, and normalisation of channels to mean 0 and variance 1.

If a function returns False, the caller must use numpy. An axis of a plane is (length of the plane, number of windows,
size of a window, stride, padding, dilation).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]
Axis = tuple[int, int, int, int, int, int]


# The compiled functions read a channel of fewer than NARROW pixels in short pieces. Short reads are fast only if the
# whole array fits into the cache: if it has at most SMALL numbers.
NARROW, SMALL = 16, 1 << 18


def _suits_channels(x: Array) -> bool:
    return bool(x.size) and (x.shape[2] >= NARROW or x.size <= SMALL)


def fold(out: Array, columns: Array, y: Axis, x: Axis) -> bool:
    """Set each pixel of `out` to the sum of its elements in `columns`: one element for each window over the pixel.

    Shapes: out: (n, channels, y length, x length); columns: (channels, y size, x size, n, y windows, x windows).
    """
    if compiled is None or not fits(out, columns):
        return False
    compiled.fold(out, columns, len(columns), *y, *x)
    return True


def find_largest(out: Array, planes: Array, y: Axis, x: Axis) -> bool:
    """Write to `out` the largest value of every window; each window overlaps the plane.

    Shapes: out: (n, y windows, x windows); planes: (n, y length, x length).
    """
    if compiled is None or not fits(out, planes):
        return False
    compiled.largest(out, planes, np.empty(planes.shape[2], np.float32), *y, *x)
    return True


def spread_largest(out: Array, planes: Array, values: Array, gradient: Array, y: Axis, x: Axis) -> bool:
    """Write to `out` the gradient of the planes: a window's gradient is added to all pixels with its largest value.

    Shapes: out, planes: (n, y length, x length); values, gradient: (n, y windows, x windows).
    """
    if compiled is None or not fits(out, planes, values, gradient):
        return False
    compiled.largest_gradient(out, planes, values, gradient, *y, *x)
    return True


def normalise(
    out: Array, statistics: tuple[Array, Array, Array], x: Array, scale: Array, shift: Array | None, epsilon: float
) -> bool:
    """Normalise each channel of x to mean 0 and variance 1, multiply it by its scale, add its shift, and write `out`.

    Args: statistics: three arrays that receive the mean, the biased variance and 1 / sqrt(variance + epsilon) of each
        channel.
    Shapes: out, x: (n, channels, pixels); statistics, scale, shift: (channels,).
    """
    if compiled is None or not _suits_channels(x) or not fits(out, *statistics, x, scale, shift):
        return False
    compiled.normalise(out, *statistics, x, scale, shift, x.shape[2], epsilon)
    return True


def normalise_gradient(
    out: Array, sums: tuple[Array, Array], g: Array, x: Array, mean: Array, inverse: Array, scale: Array
) -> bool:
    """Write to `out` the gradient of x; g is the gradient of the result of `normalise`.

    Args: sums: the function fills the first array with the sum of g over each channel, the gradient of the shift. The
        second array gets the sum of g times the normalised x, the gradient of the scale.
    """
    if compiled is None or not _suits_channels(x) or not fits(out, *sums, g, x, mean, inverse, scale):
        return False
    compiled.normalise_gradient(out, *sums, g, x, mean, inverse, scale, x.shape[2])
    return True

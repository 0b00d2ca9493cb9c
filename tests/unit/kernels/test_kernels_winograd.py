"""Winograd's convolution gives the sums of products of windows, within the rounding of float32."""

import numpy as np
import pytest
from each import each

from paddle_base.kernels import compiled
from trainer.layers.image.convolution import Convolution, WinogradConvolution, make_convolution
from trainer.layers.image.windows import ImageWindows, WindowAxis

ROUNDING = 5e-5  # of the results' standard deviation; that of products of windows is a fifth of it


def windows(height, width, padding=1, size=3, stride=1, dilation=1):
    return ImageWindows(
        tuple(
            WindowAxis(
                length,
                (length + 2 * padding - dilation * (size - 1) - 1) // stride + 1,
                size,
                stride,
                padding,
                dilation,
            )
            for length in (height, width)
        )
    )


def assert_close(found, expected):
    assert np.abs(found - expected).max() < ROUNDING * expected.std()


@pytest.mark.skipif(compiled is None, reason="without the compiled module there is one way only")
@pytest.mark.parametrize(
    "height, width, padding", [(4, 4, 1), (8, 8, 1), (12, 7, 1), (5, 9, 0), (3, 3, 0), (6, 6, 2), (3, 17, 3)]
)
@pytest.mark.parametrize("count", [1, 5])
def test_tiles_give_the_sums_of_windows(height, width, padding, count, monkeypatch):
    monkeypatch.setattr("trainer.layers.image.convolution.POINT_BYTES", 1 << 17)  # some chunks, too
    draw, shape = np.random.default_rng(1), windows(height, width, padding)
    tiled, exact = WinogradConvolution(shape, 17, 5), Convolution(shape, 17, 5)
    x, w, bias = draw.normal(size=(count, tiled.image_size)), draw.normal(size=tiled.weights), draw.normal(size=5)
    g = draw.normal(size=(count, tiled.map_size))
    x4, w4, bias4, g4 = (one.astype(np.float32) for one in (x, w, bias, g))
    for shift, shift4 in ((None, None), (bias, bias4)):
        maps = tiled.to_maps(x4, w4, np.full(g.shape, np.nan, np.float32), shift4)
        assert_close(maps, exact.to_maps(x, w, np.empty(g.shape), shift))
    assert_close(
        tiled.to_images(g4, w4, np.full(x.shape, np.nan, np.float32)), exact.to_images(g, w, np.empty(x.shape))
    )
    assert_close(tiled.gradient(x4, g4), exact.gradient(x, g))


def test_double_precision_and_empty_batches_go_by_windows():
    draw, shape = np.random.default_rng(1), windows(6, 6)
    tiled, exact = WinogradConvolution(shape, 2, 3), Convolution(shape, 2, 3)
    x, w = draw.normal(size=(2, tiled.image_size)), draw.normal(size=tiled.weights)
    maps = exact.to_maps(x, w, np.empty((2, exact.map_size)))
    np.testing.assert_array_equal(tiled.to_maps(x, w, np.empty(maps.shape)), maps)
    np.testing.assert_array_equal(tiled.gradient(x, maps), exact.gradient(x, maps))
    none = np.empty((0, tiled.image_size), np.float32), np.empty((0, tiled.map_size), np.float32)
    assert not tiled.gradient(*none).any()


@each(
    "shape, channels, groups, is_tiled",
    [
        (windows(8, 8), 32, 1, True),
        (windows(8, 8), 31, 1, False),
        (windows(8, 8), 64, 2, False),
        (windows(8, 8, stride=2), 32, 1, False),
        (windows(8, 8, dilation=2), 32, 1, False),
        (windows(8, 8, padding=2, size=5), 32, 1, False),
        (windows(2, 2), 32, 1, False),
        (windows(4, 5), 32, 1, True),
        (ImageWindows((WindowAxis(8, 8, 3, 1, 1),) * 3), 32, 1, False),
    ],
)
def test_only_fitting_convolutions_are_tiled(shape, channels, groups, is_tiled):
    assert isinstance(make_convolution(shape, channels, 32, groups), WinogradConvolution) == is_tiled


@pytest.mark.skipif(compiled is None, reason="about the compiled module")
@pytest.mark.parametrize("numbers", [(2, 4, 4, 1, 1, 0), (1, 4, 4, 2, 1, 0), (1, 4, 4, 0, 1, 0), (1, 4, 4, 1, 1, -1)])
def test_tiles_that_do_not_fit_are_refused(numbers):
    pixels, points = np.zeros(16, np.float32), np.zeros(36, np.float32)
    with pytest.raises((ValueError, TypeError)):
        compiled.tile_windows(points, pixels, *numbers)
    with pytest.raises((ValueError, TypeError)):
        compiled.tile_windows_gradient(pixels, points, *numbers)
    with pytest.raises((ValueError, TypeError)):
        compiled.tile_maps(pixels, points, None, *numbers)
    with pytest.raises((ValueError, TypeError)):
        compiled.tile_maps_gradient(points, pixels, *numbers)

"""Windows over images, normalised channels: compiled loops against Python, and arguments that do not fit."""

import numpy as np
import pytest

from paddle_base import kernels
from paddle_base.kernels import images

# (length, windows, size, stride, padding, dilation) of rows and of columns
AXES = {
    "two by two": ((4, 2, 2, 2, 0, 1), (6, 3, 2, 2, 0, 1)),
    "two by two, the last one cut off": ((5, 3, 2, 2, 0, 1), (7, 4, 2, 2, 0, 1)),
    "overlapping, padded": ((5, 5, 3, 1, 1, 1), (6, 4, 4, 2, 2, 1)),
    "apart": ((7, 2, 2, 4, 0, 1), (9, 3, 1, 3, 0, 1)),
    "one window": ((3, 1, 3, 1, 0, 1), (20, 1, 20, 1, 0, 1)),
}
DILATED = {**AXES, "dilated": ((7, 5, 2, 1, 0, 2), (9, 3, 3, 2, 1, 3))}

needs_compiled = pytest.mark.skipif(kernels.compiled is None, reason="the compiled module is not there")


def places(axis, window):
    length, _, size, stride, padding, dilation = axis
    at = [window * stride - padding + element * dilation for element in range(size)]
    return [(element, place) for element, place in enumerate(at) if 0 <= place < length]


@needs_compiled
@pytest.mark.parametrize("name", DILATED)
def test_fold_adds_up_what_windows_hold(name):
    y, x = DILATED[name]
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(2, y[2], x[2], 3, y[1], x[1])).astype(np.float32)
    out = np.full((3, 2, y[0], x[0]), np.nan, np.float32)
    assert images.fold(out, columns, y, x)
    expected = np.zeros(out.shape)
    for oy in range(y[1]):
        for ox in range(x[1]):
            for ky, row in places(y, oy):
                for kx, column in places(x, ox):
                    expected[:, :, row, column] += columns[:, ky, kx, :, oy, ox].T
    np.testing.assert_allclose(out, expected, atol=1e-5)


@needs_compiled
@pytest.mark.parametrize("name", AXES)
def test_the_largest_values_and_where_their_gradient_goes(name):
    y, x = AXES[name]
    rng = np.random.default_rng(2)
    planes = rng.integers(-3, 3, (5, y[0], x[0])).astype(np.float32)  # many equal values
    gradient = rng.normal(size=(5, y[1], x[1])).astype(np.float32)
    out, flow = np.full(gradient.shape, np.nan, np.float32), np.full(planes.shape, np.nan, np.float32)
    assert images.find_largest(out, planes, y, x) and images.spread_largest(flow, planes, out, gradient, y, x)
    expected = np.zeros(planes.shape)
    for oy in range(y[1]):
        for ox in range(x[1]):
            rows, columns = [p for _, p in places(y, oy)], [p for _, p in places(x, ox)]
            window = planes[:, rows][:, :, columns]
            np.testing.assert_array_equal(out[:, oy, ox], window.max(axis=(1, 2)))
            is_largest = window == window.max(axis=(1, 2), keepdims=True)
            expected[np.ix_(range(5), rows, columns)] += is_largest * gradient[:, oy, ox, None, None]
    np.testing.assert_allclose(flow, expected, atol=1e-5)


@needs_compiled
@pytest.mark.parametrize("pixels", [1, 4, 15, 16, 37])
@pytest.mark.parametrize("with_shift", [True, False])
def test_channels_are_normalised(pixels, with_shift):
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(6, 3, pixels)) * 2 + 100).astype(np.float32)
    scale, shift = rng.normal(size=(2, 3)).astype(np.float32)
    out, statistics = np.empty_like(x), tuple(np.empty((3, 3), np.float32))
    assert images.normalise(out, statistics, x, scale, shift if with_shift else None, 0.5)
    exact = x.astype(np.float64)
    mean, variance = exact.mean(axis=(0, 2)), exact.var(axis=(0, 2))
    np.testing.assert_allclose(statistics, [mean, variance, 1 / np.sqrt(variance + 0.5)], rtol=1e-5)
    normal = (exact - mean[:, None]) / np.sqrt(variance + 0.5)[:, None]
    expected = normal * scale[:, None] + (shift[:, None] if with_shift else 0)
    np.testing.assert_allclose(out, expected, atol=1e-4)

    g, sums = rng.normal(size=x.shape).astype(np.float32), tuple(np.empty((2, 3), np.float32))
    assert images.normalise_gradient(out, sums, g, x, statistics[0], statistics[2], scale)
    total, product = g.sum(axis=(0, 2)), (g * normal).sum(axis=(0, 2))
    np.testing.assert_allclose(sums, [total, product], atol=1e-4)
    count = 6 * pixels
    centred = g - (total / count)[:, None] - normal * (product / count)[:, None]
    np.testing.assert_allclose(out, centred * (scale / np.sqrt(variance + 0.5))[:, None], atol=1e-5)


def test_other_numbers_and_views_are_left_to_numpy():
    y = x = (4, 2, 2, 2, 0, 1)
    planes = np.zeros((1, 4, 4))
    assert not images.find_largest(np.zeros((1, 2, 2)), planes, y, x)
    assert not images.fold(np.zeros((1, 1, 4, 4)), np.zeros((1, 2, 2, 1, 2, 2)), y, x)
    turned = np.zeros((4, 4, 1), np.float32).T
    assert not images.find_largest(np.zeros((1, 2, 2), np.float32), turned, y, x)
    large = np.zeros((images.SMALL, 2, 1), np.float32)
    statistics = tuple(np.zeros((3, 2), np.float32))
    assert not images.normalise(large, statistics, large, statistics[0], None, 1e-5)


@needs_compiled
@pytest.mark.parametrize(
    "call",
    [
        lambda f: kernels.compiled.fold(f(16), f(17), 1, 4, 2, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.fold(f(16), f(16), 0, 4, 2, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.fold(f(16), f(16), 1, 4, 2, 2, 2, -1, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.largest(f(4), f(16), f(3), 4, 2, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.largest(f(5), f(16), f(4), 4, 2, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        # a window in the padding, and one behind the end
        lambda f: kernels.compiled.largest(f(4), f(16), f(4), 4, 2, 2, 2, 2, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.largest(f(6), f(16), f(4), 4, 3, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.largest_gradient(f(16), f(16), f(4), f(5), 4, 2, 2, 2, 0, 1, 4, 2, 2, 2, 0, 1),
        lambda f: kernels.compiled.normalise(f(6), f(2), f(2), f(3), f(6), f(2), None, 1, 0.1),
        lambda f: kernels.compiled.normalise(f(6), f(2), f(2), f(2), f(6), f(2), None, 2, 0.1),
        lambda f: kernels.compiled.normalise_gradient(f(6), f(2), f(2), f(6), f(5), f(2), f(2), f(2), 3),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(ValueError, match="the"):
        call(lambda size: np.zeros(size, np.float32))

"""Windows over rows: the compiled loops and those in numpy against loops in Python."""

import itertools

import numpy as np
from each import each

from paddle_base.kernels.rows import spread_maxima
from paddle_base.kernels.windows import (
    SequenceWindows,
    add_maxima,
    add_windows,
    descend_maxima,
    max_windows,
    sum_windows,
)

TYPES = [np.float64, np.float32]  # numpy, and compiled where that is there


@each("dtype", TYPES)
@each(("first", "length"), [(-1, 3), (0, 1), (0, 2), (-4, 2), (2, 3), (-2, 5)])
def test_windows_stay_in_their_sequence(first, length, dtype):
    rng = np.random.default_rng(length)
    starts = np.array([0, 3, 3, 4, 9])
    index, tables = rng.integers(0, 5, 9), rng.normal(size=(5, length, 4)).astype(dtype)
    g, windows = rng.normal(size=(9, 4)).astype(dtype), SequenceWindows(index, starts, first)
    expected, gradient = np.zeros((9, 4)), np.ones((5, length, 4))
    for begin, end in itertools.pairwise(starts):
        for row in range(begin, end):
            for k in range(length):
                if begin <= row + first + k < end:
                    expected[row] += tables[index[row + first + k], k]
                    gradient[index[row + first + k], k] += g[row]
    np.testing.assert_allclose(sum_windows(tables, windows), expected, atol=1e-5)
    target = np.ones((5, length, 4), dtype)
    add_windows(target, g, windows)
    np.testing.assert_allclose(target, gradient, atol=1e-5)


@each("dtype", TYPES)
@each(("first", "length"), [(-1, 3), (0, 1), (2, 3), (-2, 5)])
def test_maxima_of_windows_are_those_of_their_sums(first, length, dtype):
    rng = np.random.default_rng(length)
    starts = np.array([0, 3, 3, 4, 30])  # short sequences and a long one
    windows = SequenceWindows(rng.integers(0, 5, 30), starts, first)
    x, weight = rng.normal(size=(5, 6)).astype(dtype), rng.normal(size=(length, 6, 4)).astype(dtype)
    tables = np.ascontiguousarray(np.matmul(x, weight).transpose(1, 0, 2))
    sums = sum_windows(tables, windows)
    largest, places = max_windows(tables, windows)
    for i, (begin, end) in enumerate(itertools.pairwise(starts)):
        assert largest[i].tolist() == (sums[begin:end].max(axis=0).tolist() if begin < end else [0] * 4)
        assert places[i].tolist() == ((begin + sums[begin:end].argmax(axis=0)).tolist() if begin < end else [-1] * 4)
    g = rng.normal(size=(4, 4)).astype(dtype)
    expected, target = np.zeros_like(tables), np.zeros_like(tables)
    add_windows(expected, spread_maxima(g, places, 30), windows)
    add_maxima(target, g, places, windows)
    np.testing.assert_allclose(target, expected, atol=1e-5)
    found = descend_maxima(weight, x, g, places, windows)
    if found is not None:
        np.testing.assert_allclose(found[0], np.einsum("ud,ukw->kdw", x, expected), atol=1e-4)
        np.testing.assert_allclose(found[1], np.einsum("ukw,kdw->ud", expected, weight), atol=1e-4)

"""Products and sums in the order in which the legacy added them up."""

import numpy as np
import pytest
from each import each

from paddle_base.kernels import compiled, products, rows


def fused(a, b):
    """A product whose terms are added one after the other, each rounded with the sum, as BLAS does it for matrices."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (total + np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))).astype(np.float32)
    return total


def added_up(a, b):
    """The same, where each product is rounded before it is added."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + np.outer(a[:, k], b[k])
    return total


@pytest.mark.parametrize("shape", [(4, 6, 3), (4, 6, 1), (19, 5, 1), (1, 6, 1)])
def test_a_product_is_one_of_matrices_even_with_a_single_column(shape):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=size).astype(np.float32) for size in (shape[:2], shape[1:]))
    found = products.multiply(a, b)
    assert found.flags.c_contiguous and found.shape == (shape[0], shape[2])
    np.testing.assert_allclose(found, fused(a, b), rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(compiled is None, reason="the compiled module is not built here")
@each("is_transposed", [False, True])
@each("depth", [1, 16, 37, 600])
@each("rows", [0, 1, 3, 4, 29])
def test_a_packed_matrix_adds_the_terms_in_order_whatever_the_number_of_rows(rows, depth, is_transposed):
    rng = np.random.default_rng(depth)
    b, a = (
        rng.normal(size=(depth, 128)).astype(np.float32),
        rng.normal(size=(rows, 2 * depth)).astype(np.float32)[:, ::2],
    )
    matrix = np.ascontiguousarray(b.T) if is_transposed else b
    assert products.PackedMatrix.fits(matrix, is_transposed=is_transposed)
    found = products.PackedMatrix(matrix, is_transposed=is_transposed).multiply(a)
    # a processor without fused products, and the build of the sanitizers, round each product, too
    is_fused = np.allclose(found, fused(a, b), rtol=1e-6, atol=1e-6)
    assert is_fused or np.allclose(found, added_up(a, b), rtol=1e-6, atol=1e-6)
    if rows:
        assert found[-1].tolist() == products.PackedMatrix(b).multiply(a[-1:])[0].tolist()


@pytest.mark.skipif(compiled is None, reason="the compiled module is not built here")
def test_panels_that_do_not_fit_are_refused():
    b = np.zeros((3, 64), np.float32)
    assert not any(map(products.PackedMatrix.fits, (b.T, b[:, :60].copy(), b[:, ::2], b[:0], b.astype(np.float64))))
    packed = products.PackedMatrix(b)
    with pytest.raises(ValueError, match="the rows do not fit"):
        packed.multiply(np.zeros((2, 4), np.float32))
    room = np.empty(3 * 64 + 16, np.float32)
    for depth, width in ((3, 128), (0, 64), (-3, -64), (3, 60), (1 << 62, 64)):
        with pytest.raises(ValueError, match="the panels do not fit"):
            compiled.pack_matrix(room, depth, width, b, False)
    with pytest.raises(ValueError, match="the matrix does not fit"):
        compiled.pack_matrix(room, 3, 64, b[:2], False)


@pytest.mark.skipif(compiled is None, reason="the compiled module is not built here")
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (500, 1), (300, 5)])
def test_columns_are_added_up_one_row_after_the_other(shape):
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    total = np.zeros(shape[1], np.float32)
    for row in x:
        total += row
    assert rows.sum_columns(x).tolist() == total.tolist()

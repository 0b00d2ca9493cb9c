"""Products and sums in the order in which the legacy added them up."""

import numpy as np
import pytest

from paddle_base.kernels import compiled, products, rows


def fused(a, b):
    """A product whose terms are added one after the other, each rounded with the sum, as BLAS does it for matrices."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (total + np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))).astype(np.float32)
    return total


@pytest.mark.parametrize("shape", [(4, 6, 3), (4, 6, 1), (19, 5, 1), (1, 6, 1)])
def test_a_product_is_one_of_matrices_even_with_a_single_column(shape):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=size).astype(np.float32) for size in (shape[:2], shape[1:]))
    found = products.multiply(a, b)
    assert found.flags.c_contiguous and found.shape == (shape[0], shape[2])
    np.testing.assert_allclose(found, fused(a, b), rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(compiled is None, reason="the compiled module is not built here")
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (500, 1), (300, 5)])
def test_columns_are_added_up_one_row_after_the_other(shape):
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    total = np.zeros(shape[1], np.float32)
    for row in x:
        total += row
    assert rows.sum_columns(x).tolist() == total.tolist()

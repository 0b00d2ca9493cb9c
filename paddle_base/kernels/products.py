"""Products of matrices, rounded as in the legacy program, and products of few rows with one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]


def multiply(a: Array, b: Array) -> Array:
    """Return a b. Shapes: a: (n, k), b: (k, m) -> (n, m).

    If b has a single column, it is multiplied as two equal columns. BLAS would add the terms of a product of a matrix
    and a vector in a different order.
    """
    if b.shape[1] == 1:
        return np.ascontiguousarray((a @ np.repeat(b, 2, axis=1))[:, :1])
    product: Array = a @ b
    return product


class PackedMatrix:
    """A matrix for many products of few rows. A BLAS library would copy the matrix in each product.

    Every sum adds its terms in order, whatever the number of rows. A BLAS library adds them so, too, up to a number of
    terms (320 to 512) that depends on the processor.

    Args: matrix: a matrix for which `fits` is true. is_transposed: whether `multiply` uses its transpose.
    """

    WIDEST = 64  # columns of the widest panels; see products.c
    SPARE = 16  # floats; see products.c

    def __init__(self, matrix: Array, *, is_transposed: bool = False) -> None:
        self._depth, self._width = matrix.shape[::-1] if is_transposed else matrix.shape
        self._room = np.empty(matrix.size + self.SPARE, np.float32)
        assert compiled is not None  # fits
        compiled.pack_matrix(self._room, self._depth, self._width, matrix, is_transposed)

    @classmethod
    def fits(cls, matrix: Array, *, is_transposed: bool = False) -> bool:
        """Return whether the matrix can be packed; if not, the caller must use `multiply` or numpy."""
        width = matrix.shape[0 if is_transposed else 1]
        return compiled is not None and fits(matrix) and matrix.size > 0 and width % cls.WIDEST == 0

    def multiply(self, a: Array) -> Array:
        """Return a times the matrix. Shapes: a: (n, k) float32, the matrix: (k, m) -> (n, m)."""
        product = np.empty((len(a), self._width), np.float32)
        assert compiled is not None  # fits
        compiled.multiply_packed(product, np.ascontiguousarray(a), self._room, self._depth, self._width)
        return product

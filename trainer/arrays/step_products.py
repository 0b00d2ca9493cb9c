"""The products of a recurrent group's steps with one parameter: the steps have few rows, and the same matrices.

The products x^T g of all steps are computed as one product, which is faster than one for each step. x is the input of a
layer, g is the gradient of its output, and x^T g is the gradient of its weights. The matrices of the other products are
packed once for all steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paddle_base.kernels.products import PackedMatrix
from trainer.arrays.arguments import Array

FEW = 256  # products of at least this many rows are not joined, because joining them saves no time


class StepProducts:
    """The collected rows of x and g, and the packed matrices, for each matrix of a parameter."""

    def __init__(self) -> None:
        self._packed: dict[tuple[int, bool], PackedMatrix] = {}
        self._rows: dict[tuple[int, int, int], tuple[list[Array], list[Array]]] = {}

    def add(self, x: Array, g: Array, begin: int) -> None:
        """Add rows to the product that belongs to the matrix at element `begin` of a parameter.

        g is copied, because layers change gradients in place.

        Shapes: x: (n, rows), g: (n, columns).
        """
        xs, gs = self._rows.setdefault((begin, x.shape[1], g.shape[1]), ([], []))
        xs.append(x)
        gs.append(g.copy())

    def multiply(self, x: Array, matrix: Array, begin: int, *, is_transposed: bool) -> Array | None:
        """Return x times the matrix at element `begin` of a parameter, or times its transpose.

        Return None if the caller must compute the product. The matrix must be the same at each call.
        """
        if x.dtype != np.float32 or not PackedMatrix.fits(matrix, is_transposed=is_transposed):
            return None
        packed = self._packed.get((begin, is_transposed))
        if packed is None:
            packed = self._packed[begin, is_transposed] = PackedMatrix(matrix, is_transposed=is_transposed)
        return packed.multiply(x)

    def join(self) -> Iterator[tuple[Array, Array, int]]:
        """Yield, for each matrix, its rows of x, its rows of g, and the number of its first element."""
        for (begin, _, _), (xs, gs) in self._rows.items():
            yield np.concatenate(xs), np.concatenate(gs), begin

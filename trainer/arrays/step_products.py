"""Compute the products x^T g of a recurrent group's steps as one product, which is faster than one for each step.

x is the input of a layer, g is the gradient of its output, and x^T g is the gradient of its weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainer.arrays.arguments import Array

FEW = 256  # products of at least this many rows are not joined, because joining them saves no time


class StepProducts:
    """The collected rows of x and g, for each matrix of a parameter."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, int], tuple[list[Array], list[Array]]] = {}

    def add(self, x: Array, g: Array, begin: int) -> None:
        """Add rows to the product that belongs to the matrix at element `begin` of a parameter.

        g is copied, because layers change gradients in place.

        Shapes: x: (n, rows), g: (n, columns).
        """
        xs, gs = self._rows.setdefault((begin, x.shape[1], g.shape[1]), ([], []))
        xs.append(x)
        gs.append(g.copy())

    def join(self) -> Iterator[tuple[Array, Array, int]]:
        """Yield, for each matrix, its rows of x, its rows of g, and the number of its first element."""
        for (begin, _, _), (xs, gs) in self._rows.items():
            yield np.concatenate(xs), np.concatenate(gs), begin

"""The products x^T g of the steps of a recurrent group: one product over all steps is faster than one for each step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainer.arrays.arguments import Array

FEW = 256  # rows; a product of more rows does not become faster when the rows of further steps are added


class StepProducts:
    """The rows of x and g whose products wait, for each matrix of a parameter."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int, int], tuple[list[Array], list[Array]]] = {}

    def add(self, x: Array, g: Array, begin: int) -> None:
        """Add rows to the product of a matrix; g is copied, because layers change gradients in place.

        Shapes: x: (n, rows), g: (n, columns).
        """
        xs, gs = self._rows.setdefault((begin, x.shape[1], g.shape[1]), ([], []))
        xs.append(x)
        gs.append(g.copy())

    def join(self) -> Iterator[tuple[Array, Array, int]]:
        """Yield x, g and the first element of each matrix, with the rows of all steps."""
        for (begin, _, _), (xs, gs) in self._rows.items():
            yield np.concatenate(xs), np.concatenate(gs), begin

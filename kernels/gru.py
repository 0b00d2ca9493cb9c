"""All steps of a GRU in one pass. A row of gates is (u, r, c), each of `size` numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import compiled, fits
from kernels.steps import KINDS, are_compiled

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class GruRun:
    """All steps of a layer over packed sequences, and the data for both directions.

    Step t has the rows begins[t]:begins[t + 1] of every packed array; no step has more rows than the previous one.

    Shapes: gates: (frames, 3 * size); reset, h: (frames, size), r h' and the output; begins: (steps + 1,) int64.
    """

    gates: Array
    reset: Array
    h: Array
    begins: Ids
    gate: str  # the activation of u and r
    candidate: str  # the activation of c

    def fits(self) -> bool:
        """Return whether `forward` and `backward` can be used; if not, the caller must use numpy."""
        return (
            compiled is not None and are_compiled((self.gate, self.candidate)) and fits(self.gates, self.reset, self.h)
        )

    def forward(self, x: Array, rows: Ids, w: Array, bias: Array | None) -> None:
        """Run the steps; the sums of a step start with x[rows] + bias. Write gates, reset and h.

        Shapes: x: (any, 3 * size); rows: (frames,); w: flat, (size, 2 * size) and (size, size); bias: (3 * size,).
        """
        assert compiled is not None  # fits
        compiled.gru_run_forward(*self._arguments(x, rows, w), bias, self.h)

    def backward(self, gradient: Array, rows: Ids, transposed: Array) -> None:
        """Run the steps from the last one to the first; replace the gates by the gradients of their sums.

        Shapes: gradient: (any, size), of h, at `rows`; transposed: flat, w's matrices, each transposed.
        """
        assert compiled is not None  # fits
        compiled.gru_run_backward(*self._arguments(gradient, rows, transposed), self.h)

    def _arguments(self, x: Array, rows: Ids, w: Array) -> tuple[Any, ...]:
        kinds = KINDS[self.gate], KINDS[self.candidate]
        ids = np.ascontiguousarray(rows, np.int64)
        return self.gates, np.ascontiguousarray(x), ids, w, self.reset, self.begins, self.h.shape[1], *kinds

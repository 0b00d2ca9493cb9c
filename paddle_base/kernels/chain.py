"""The costs of a conditional random field over the labels of sequences, and the gradients of these costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class LabelChain:
    """A conditional random field over the labels of sequences.

    Shapes: x: (frames, classes), the score of each class in each frame; labels: (frames,) in [0, classes); starts:
        (sequences + 1,) from 0, where sequence s has the frames [starts[s], starts[s + 1]); scores: (classes + 2,
        classes) float64. Row 0 of `scores` scores the first label, row 1 scores the last label, and row 2 + k scores
        each label that follows label k.
    """

    x: Array
    labels: Ids
    starts: Ids
    scores: Array
    sums: Array  # (2, frames, classes) float64; `costs` writes this array and `gradients` reads it

    def fits(self) -> bool:
        """Return whether `costs` and `gradients` can be used; if not, the caller must use numpy."""
        return compiled is not None and fits(self.x) and bool(self.x.shape[1])

    def costs(self) -> Array:
        """Return -ln(probability of the labels) for each sequence, 0 for an empty sequence.

        Shape: (sequences,) float64.
        """
        assert compiled is not None  # fits
        costs = np.empty(len(self.starts) - 1)
        compiled.chain_costs(*self._arguments(), costs)
        return costs

    def gradients(self, weights: Array) -> tuple[Array, Array]:
        """Return the gradients with respect to x and to `scores` of the sum of weights[s] * costs[s] over all s."""
        assert compiled is not None  # fits
        d_x, d_scores = np.empty_like(self.x), np.empty_like(self.scores)
        compiled.chain_gradients(*self._arguments(), np.ascontiguousarray(weights, np.float64), d_x, d_scores)
        return d_x, d_scores

    def _arguments(self) -> tuple[Any, ...]:
        labels, starts = (np.ascontiguousarray(ids, np.int64) for ids in (self.labels, self.starts))
        return self.x, labels, starts, self.scores, *self.sums

"""The two parts of attention that read whole sequences: the score of each frame, and the weighted sum of the frames.

In a config each part consists of several layers, which copy the state, the scores and the gradients for every frame.
Each layer of this module replaces the layers of one part (trainer/network/fusion.py) and makes no such copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.products import multiply
from paddle_base.kernels.rows import differentiate_weighted_sums, sum_rows
from paddle_base.kernels.steps import differentiate_tanh_sums, tanh_sums
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.text import ROWS_ADVICE
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import require_matrix, require_starts, require_weight

# types of the layers that trainer.network.fusion makes; a config cannot name these types
SCORES = "scores of frames"
WEIGHTED_SUMS = "weighted sums of frames"


class FrameScoreLayer(Layer):
    """Returns v . tanh(x + s) plus a bias for each frame x, where s is the row that belongs to the sequence of x.

    Inputs: the rows s, (sequences, n), whose parameter is v, (n,); the frames x, (frames, n); and a layer that defines
    the sequences.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._v = require_weight(self, 0, self.weights[0].size if self.weights[0] is not None else 0)
        self._bias = Bias(self)
        self._y: Array
        self._starts: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the scores, (frames, 1), before the activation.

        Raises: DataError: the number of rows differs from the number of sequences, or the second and third input have
            different numbers of frames.
        """
        rows, x = (require_matrix(self, one, self._v.size) for one in inputs[:2])
        self._starts = starts = require_starts(self, inputs[2], 2)
        if len(rows) != len(starts) - 1:
            raise DataError(f"{self}: there are {len(rows)} rows for {len(starts) - 1} sequences; {ROWS_ADVICE}")
        if len(x) != starts[-1]:
            raise DataError(f"{self}: there are {len(x)} frames, but its sequences have {starts[-1]} frames")
        self._y = tanh_sums(np.ascontiguousarray(x), np.ascontiguousarray(rows), starts)
        scores = self._bias.add_to(multiply(self._y, self._v.value.reshape(-1, 1)), is_fresh=True)
        return Argument(value=scores, starts=starts, sub_starts=inputs[2].sub_starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the rows and of the frames."""
        self._bias.backward(gradient)
        d_x, d_rows, d_v = differentiate_tanh_sums(gradient, self._y, self._v.value, self._starts)
        if not self._v.is_static:
            self._v.add_gradient(d_v)
        return [d_rows, d_x, None]


class WeightedSumLayer(Layer):
    """Returns the sum of w x over the frames of each sequence. Inputs: w (frames, 1); x (frames, size)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._w: Array
        self._x: Array
        self._starts: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sums, (sequences, size).

        Raises: DataError: the number of weights differs from the number of frames.
        """
        self._w, self._x = require_matrix(self, inputs[0], 1), require_matrix(self, inputs[1], self.size)
        self._starts = require_starts(self, inputs[0])
        if len(self._w) != len(self._x):
            raise DataError(f"{self}: there are {len(self._w)} weights for {len(self._x)} frames")
        return Argument(value=sum_rows(self._x, np.arange(len(self._x)), self._starts, self._w.reshape(-1)))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradients of the weights and of the frames."""
        d_w, d_x = differentiate_weighted_sums(gradient, self._w, self._x, self._starts)
        return [d_w if wanted[0] else None, d_x if wanted[1] else None]

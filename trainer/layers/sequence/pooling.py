"""Layers that reduce stretches of frames to one row each.

A stretch is a sequence, a sub-sequence, or seq_pool_stride frames of a sequence. The types are max, average (also sum,
and sum / square root of the length) and seqlastins (first or last frame). An empty sequence gives a row of zeros and
gets no gradient.

Source: gserver/layers/SequencePoolLayer.cpp, MaxLayer.cpp, AverageLayer.cpp, SequenceLastInstanceLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import add_outer, max_stretches, spread_maxima, sum_rows, sum_stretches
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, DistinctGradient, Flowing, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import require_matrix, require_starts, require_sub_starts
from trainer.layers.ragged import scatter_rows, starts_of


class SequencePoolingLayer(Layer):
    """Pools stretches of frames: (frames, size) -> (stretches, size). A subclass defines the pooling.

    With trans_type "non-seq", each sequence gives one row, and the result has no sequences. With "seq", each
    sub-sequence gives one row, and the result has the outer sequences. With seq_pool_stride n, every n frames give one
    row; the last stretch of a sequence may have fewer frames.
    """

    strides_from_the_end = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        if config.trans_type not in ("non-seq", "seq"):
            raise ConfigError(f"{self}: trans_type '{config.trans_type}' is neither 'non-seq' nor 'seq'")
        if config.trans_type == "seq" and config.seq_pool_stride > 0:
            raise ConfigError(f"{self}: seq_pool_stride can be used only with trans_type 'non-seq'")
        self._bias = Bias(self)
        self._x: Array
        self._starts: Ids

    def pool(self, x: Array, starts: Ids) -> Array:
        """Return the row of each stretch, as a new array."""
        raise NotImplementedError

    def spread(self, gradient: Array, x: Array, starts: Ids) -> Array:
        """Return the gradient of the frames from the gradient of the rows that `pool` returned for these stretches."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the pooled rows.

        Raises: ConfigError: the input has no (sub-)sequences.
        """
        self._x = require_matrix(self, inputs[0], self.size)
        self._starts, outer = self.find_stretches(inputs[0])
        return self.add_bias(self.pool(self._x, self._starts), outer)

    def find_stretches(self, one: Argument) -> tuple[Ids, Ids | None]:
        """Return where the stretches begin, and where the sequences of the result begin (None: no sequences)."""
        starts = require_starts(self, one)
        if self.config.trans_type == "seq":
            sub_starts = require_sub_starts(self, one)
            return sub_starts, count_sub_sequences(starts, sub_starts)
        if self.config.seq_pool_stride <= 0:
            return starts, None
        if one.sub_starts is not None:
            raise ConfigError(f"{self}: seq_pool_stride cannot be used with sub-sequences")
        return cut_strides(starts, self.config.seq_pool_stride, from_the_end=self.strides_from_the_end)

    def add_bias(self, rows: Array, starts: Ids | None) -> Argument:
        """Return the pooled rows plus the bias. The method may change `rows`."""
        return Argument(value=self._bias.add_to(rows, is_fresh=True), starts=starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return the gradient of the frames."""
        self._bias.backward(gradient)
        return [self.spread(gradient, self._x, self._starts) if wanted[0] else None]


class MaxLayer(SequencePoolingLayer):
    """The maximum of each column; the first maximum gets the gradient.

    With output_max_index, the result is the position of the maximum's frame in the batch, or -1 for an empty sequence.
    """

    _places: Ids

    def pool(self, x: Array, starts: Ids) -> Array:
        """Return the maxima, or the positions of their frames."""
        largest, self._places = max_stretches(x, starts)
        return self._places.astype(x.dtype) if self.config.output_max_index else largest

    def spread(self, gradient: Array, x: Array, starts: Ids) -> Array:
        """Return the gradient at the maxima, and zero elsewhere.

        Raises: ConfigError: output_max_index is set.
        """
        if self.config.output_max_index:
            raise ConfigError(f"{self}: output_max_index has no gradient, so no layer before this layer may be trained")
        return spread_maxima(gradient, self._places, len(x))


class AverageLayer(SequencePoolingLayer):
    """The sum of n frames, divided by 1 (strategy "sum"), by n ("average") or by sqrt(n) ("squarerootn").

    Repeated frames, such as embeddings of words, are summed from their distinct rows.
    """

    takes_repeats = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        powers = {"average": -1.0, "squarerootn": -0.5, "sum": 0.0}
        strategy = config.average_strategy or "average"
        if strategy not in powers:
            raise ConfigError(f"{self}: average_strategy '{strategy}' is none of {', '.join(powers)}")
        self._power = powers[strategy]
        self._repeats: Argument | None = None

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the pooled rows."""
        one = inputs[0]
        self._repeats = None
        if one.distinct is None or one.index is None or one.distinct.shape[1] != self.size:
            return super().forward(inputs)
        self._repeats = one
        self._starts, outer = self.find_stretches(one)
        return self.add_bias(self._scale(sum_rows(one.distinct, one.index, self._starts), self._starts), outer)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return the gradient of the frames, or of the distinct frames."""
        one = self._repeats
        if one is None or one.distinct is None or one.index is None or not wanted[0]:
            return super().backward(gradient, wanted)
        self._bias.backward(gradient)
        result: Array = np.zeros_like(one.distinct)
        add_outer(result, self._scale(gradient.copy(), self._starts), one.index, self._starts)
        return [DistinctGradient(result)]

    def pool(self, x: Array, starts: Ids) -> Array:
        """Return the sums, divided as the strategy requires."""
        return self._scale(sum_stretches(x, starts), starts)

    def spread(self, gradient: Array, x: Array, starts: Ids) -> Array:
        """Return, for every frame, the gradient of its stretch, divided as the strategy requires."""
        return np.repeat(self._scale(gradient.copy(), starts), np.diff(starts), axis=0)

    def _scale(self, rows: Array, starts: Ids) -> Array:
        """Divide the row of each stretch in place by 1, n or sqrt(n), where n is the stretch's number of frames."""
        if self._power:
            lengths = np.maximum(np.diff(starts), 1).astype(rows.dtype)
            rows *= lengths[:, None] ** rows.dtype.type(self._power)
        return rows


class SequenceEndLayer(SequencePoolingLayer):
    """The last frame of each stretch or, with select_first, the first frame.

    With select_first and seq_pool_stride, the stretches are counted from the end of the sequence.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.strides_from_the_end = config.select_first

    def pool(self, x: Array, starts: Ids) -> Array:
        """Return the frames."""
        picked, filled = self._pick(starts)
        rows = x.take(picked, axis=0)
        return rows if filled is None else scatter_rows(rows, filled, len(starts) - 1)

    def spread(self, gradient: Array, x: Array, starts: Ids) -> Array:
        """Return the gradient at the frames, and zero elsewhere."""
        picked, filled = self._pick(starts)
        return scatter_rows(gradient if filled is None else gradient[filled], picked, len(x))

    def _pick(self, starts: Ids) -> tuple[Ids, Ids | None]:
        """Return the picked frame of each nonempty stretch, and the numbers of these stretches (None: all)."""
        is_filled = starts[1:] > starts[:-1]
        frames = starts[:-1] if self.config.select_first else starts[1:] - 1
        return (frames, None) if is_filled.all() else (frames[is_filled], np.flatnonzero(is_filled))


def count_sub_sequences(starts: Ids, sub_starts: Ids) -> Ids:
    """Return the number of the first sub-sequence of each sequence, and the number of all sub-sequences."""
    outer: Ids = np.searchsorted(sub_starts, starts).astype(np.int64)
    outer[-1] = len(sub_starts) - 1
    return outer


def cut_strides(starts: Ids, stride: int, *, from_the_end: bool) -> tuple[Ids, Ids]:
    """Return where the pieces of `stride` frames begin, and the number of the first piece of each sequence.

    The last piece of a sequence may have fewer frames. If pieces are counted from the end, the first piece of a
    sequence may have fewer frames instead.
    """
    lengths = np.diff(starts)
    pieces = -(-lengths // stride)
    outer = starts_of(pieces)
    ranks = np.arange(outer[-1]) - np.repeat(outer[:-1], pieces)
    if from_the_end:
        missing = pieces * stride - lengths
        begins = np.repeat(starts[:-1], pieces) + np.maximum(ranks * stride - np.repeat(missing, pieces), 0)
    else:
        begins = np.repeat(starts[:-1], pieces) + ranks * stride
    return np.append(begins, starts[-1]), outer

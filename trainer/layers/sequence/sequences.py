"""Layers that make new sequences from sequences: they repeat, join, cut, select or mix frames.

Source: spec/config.md 6, Sequence; these files in gserver/layers of v0.10: ExpandLayer.cpp, Sequence*Layer.cpp,
SubSequenceLayer.cpp, SubNestedSequenceLayer.cpp, KmaxSeqScoreLayer.cpp, RowConvLayer.cpp.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from paddle_base.kernels.rows import add_rows, sum_stretches
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.text import ROWS_ADVICE
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import (
    require_ids,
    require_matrix,
    require_rows,
    require_same_rows,
    require_starts,
    require_sub_starts,
    require_weight,
)
from trainer.layers.ragged import join_ranges, starts_of
from trainer.layers.sequence.pooling import count_sub_sequences
from trainer.layers.ties import sort_largest


class ExpandLayer(Layer):
    """Repeats each row as often as the corresponding sequence of the second input has frames, and adds a bias.

    With trans_type "seq", rows correspond to sub-sequences. Inputs: x, a row for each (sub-)sequence; and any layer
    with these (sub-)sequences.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._bias = Bias(self)
        self._starts: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the rows, with the sequences of the second input.

        Raises: DataError: the numbers of rows and sequences differ.
        """
        x, like = require_matrix(self, inputs[0], self.size), inputs[1]
        is_nested = self.config.trans_type == "seq"
        self._starts = require_sub_starts(self, like) if is_nested else require_starts(self, like, 1)
        if len(x) != len(self._starts) - 1:
            what = "sub-sequences" if is_nested else "sequences"
            raise DataError(f"{self}: there are {len(x)} rows for {len(self._starts) - 1} {what}; {ROWS_ADVICE}")
        rows = np.repeat(x, np.diff(self._starts), axis=0)
        return Argument(value=self._bias.add_to(rows, is_fresh=True), starts=like.starts, sub_starts=like.sub_starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return, for each row, the sum of the gradients of its repetitions."""
        self._bias.backward(gradient)
        return [sum_stretches(gradient, self._starts) if wanted[0] else None, None]


class SequenceConcatLayer(Layer):
    """Each sequence of the first input, followed by the sequence of the second input, plus a bias."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._bias = Bias(self)
        self._places: list[Ids] = []

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the joined sequences.

        Raises: DataError: the inputs have different numbers of sequences.
        """
        values = [require_matrix(self, one, self.size) for one in inputs]
        first, second = (np.diff(require_starts(self, one, i)) for i, one in enumerate(inputs))
        if len(first) != len(second):
            raise DataError(
                f"{self}: its inputs have {len(first)} and {len(second)} sequences; these numbers must be equal"
            )
        starts = starts_of(first + second)
        self._places = [join_ranges(starts[:-1], first), join_ranges(starts[:-1] + first, second)]
        result: Array = np.empty((starts[-1], self.size), values[0].dtype)
        for value, places in zip(values, self._places, strict=True):
            result[places] = value
        return Argument(value=self._bias.add_to(result, is_fresh=True), starts=starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the rows of the gradient that belong to each input."""
        self._bias.backward(gradient)
        return [
            gradient.take(places, axis=0) if want else None for places, want in zip(self._places, wanted, strict=True)
        ]


class SequenceReshapeLayer(Layer):
    """Arranges the numbers of each sequence in frames of `size` numbers; adds a bias."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._bias = Bias(self)
        self._shape: tuple[int, ...] = ()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the numbers in their new frames.

        Raises: DataError: the numbers of a sequence do not fill its new frames.
        """
        x, ends = (
            require_rows(self, inputs[0]),
            require_starts(self, inputs[0]) * require_rows(self, inputs[0]).shape[1],
        )
        if (ends % self.size).any():
            raise DataError(f"{self}: the numbers of a sequence do not fill frames of {self.size} numbers")
        self._shape = x.shape
        rows = x.reshape(x.size // self.size, self.size)
        return Argument(value=self._bias.add_to(rows, is_fresh=False), starts=ends // self.size)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient in the frames of the input."""
        self._bias.backward(gradient)
        return [gradient.reshape(self._shape)]


class PickingLayer(Layer):
    """A layer that copies rows of its first input. A subclass selects the rows, and may select a row repeatedly."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self._bias = Bias(self)
        self._picked: Ids
        self._height = 0

    def pick(self, inputs: Sequence[Argument]) -> tuple[Ids, Ids, Ids | None]:
        """Return the numbers of the selected rows, and the starts and sub_starts of the result."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the selected rows."""
        x = require_matrix(self, inputs[0], self.size)
        self._picked, starts, sub_starts = self.pick(inputs)
        self._height = len(x)
        rows = self._bias.add_to(x.take(self._picked, axis=0), is_fresh=True)
        return Argument(value=rows, starts=starts, sub_starts=sub_starts)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the selected rows, and zero for all other rows."""
        self._bias.backward(gradient)
        results: list[Array | None] = [None] * len(wanted)
        if wanted[0]:
            of_x: Array = np.zeros((self._height, self.size), gradient.dtype)
            add_rows(of_x, self._picked, gradient)
            results[0] = of_x
        return results


class SubSequenceLayer(PickingLayer):
    """Selects `size` frames of each sequence, beginning with frame `offset`.

    Inputs: x; the offset for each sequence, as ids; the size for each sequence, as ids.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 3)

    def pick(self, inputs: Sequence[Argument]) -> tuple[Ids, Ids, Ids | None]:
        """Return the frames.

        Raises: DataError: a sequence does not contain all of its selected frames.
        """
        starts = require_starts(self, inputs[0])
        offsets, sizes = require_ids(self, inputs[1]), require_ids(self, inputs[2])
        require_same_rows(self, [starts[1:], offsets, sizes])
        wrong = np.flatnonzero((offsets < 0) | (sizes < 0) | (offsets + sizes > np.diff(starts)))
        if len(wrong):
            one = int(wrong[0])
            raise DataError(
                f"{self}: sequence {one} of the batch has {starts[one + 1] - starts[one]} frames, "
                f"but {sizes[one]} frames from frame {offsets[one]} on are selected"
            )
        return join_ranges(starts[:-1] + offsets, sizes), starts_of(sizes), None


class SequenceSliceLayer(PickingLayer):
    """Selects slices of each (sub-)sequence; each slice becomes a (sub-)sequence.

    Inputs: x; then the first frames of the slices, the last frames of the slices, or both. The inputs after x have a
    row for each (sub-)sequence of x, and -1 ends a row. If the layer has only two inputs, select_first says whether the
    second input contains the first frames.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 3)

    def pick(self, inputs: Sequence[Argument]) -> tuple[Ids, Ids, Ids | None]:
        """Return the slices' frames.

        Raises: DataError: a slice is empty or not inside its sequence.
        """
        starts, sub_starts = require_starts(self, inputs[0]), inputs[0].sub_starts
        bounds = starts if sub_starts is None else sub_starts
        given = [require_rows(self, one).astype(np.int64) for one in inputs[1:]]
        require_same_rows(self, [bounds[1:], *given])
        is_there = np.logical_and.accumulate(np.all([one != -1 for one in given], axis=0), axis=1)  # -1 ends a list
        begins, ends = bounds[:-1, None], bounds[1:, None]
        if len(given) == 2 or self.config.select_first:
            begins = begins + given[0]
        if len(given) == 2 or not self.config.select_first:
            ends = bounds[:-1, None] + given[-1] + 1
        shape = is_there.shape
        begins, ends = np.broadcast_to(begins, shape)[is_there], np.broadcast_to(ends, shape)[is_there]
        within = [np.broadcast_to(one, shape)[is_there] for one in (bounds[:-1, None], bounds[1:, None])]
        if ((begins < within[0]) | (begins >= ends) | (ends > within[1])).any():
            raise DataError(f"{self}: a slice is empty or not inside its sequence; frames are counted from 0")
        slices = starts_of(ends - begins)
        if sub_starts is None:
            return join_ranges(begins, ends - begins), slices, None
        chosen = starts_of(is_there.sum(axis=1))
        return join_ranges(begins, ends - begins), slices[chosen[count_sub_sequences(starts, sub_starts)]], slices


class SubNestedSequenceLayer(PickingLayer):
    """Selects some sub-sequences of each sequence.

    Inputs: x, and a row for each sequence with the numbers of its selected sub-sequences; -1 ends a row.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)

    def pick(self, inputs: Sequence[Argument]) -> tuple[Ids, Ids, Ids | None]:
        """Return the row numbers, starts and sub-sequence starts of the selected sub-sequences.

        Raises: DataError: a sequence has no sub-sequence with a given number.
        """
        sub_starts = require_sub_starts(self, inputs[0])
        starts = require_starts(self, inputs[0])
        outer = count_sub_sequences(starts, sub_starts)
        numbers = require_rows(self, inputs[1]).astype(np.int64)
        require_same_rows(self, [starts[1:], numbers])
        is_there = np.logical_and.accumulate(numbers != -1, axis=1)
        if (is_there & ((numbers < 0) | (numbers >= np.diff(outer)[:, None]))).any():
            raise DataError(f"{self}: a selected sub-sequence does not exist; sub-sequences are counted from 0")
        chosen = (outer[:-1, None] + numbers)[is_there]
        lengths = np.diff(sub_starts)[chosen]
        chosen_starts = starts_of(lengths)
        frames = join_ranges(sub_starts[chosen], lengths)
        return frames, chosen_starts[starts_of(is_there.sum(axis=1))], chosen_starts


class TopScoresLayer(Layer):
    """The numbers of the frames with the `beam_size` largest scores of each (sub-)sequence, the largest score first.

    Equal scores are in the order of `std::partial_sort` (trainer/layers/ties.py).
    Frames are counted from the first frame of the (sub-)sequence. x: (frames, 1) -> ((sub-)sequences, beam_size); -1
    fills the rest of a row. The scores get no gradient.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        if config.beam_size < 1:
            raise ConfigError(f"{self} needs a beam_size over 0")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the positions of the frames, as numbers."""
        one = inputs[0]
        scores, starts = require_matrix(self, one, 1)[:, 0], require_starts(self, one)
        if one.sub_starts is not None:
            starts = one.sub_starts
        count: int = self.config.beam_size
        result: Array = np.full((len(starts) - 1, count), -1, scores.dtype)
        for row, (begin, end) in zip(result, itertools.pairwise(starts.tolist()), strict=True):
            best = sort_largest(scores[begin:end].tolist(), count)[:count]
            row[: len(best)] = best
        return Argument(value=result)


class RowConvolutionLayer(Layer):
    """y_t = the sum over i < context_length of w_i * x_(t + i); frames after the end of the sequence are zero.

    Shapes: x: (frames, size), w: (context_length, size).
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._length: int = config.inputs[0].row_conv_conf.context_length
        self._weight = require_weight(self, 0, self._length * self.size)
        self._x: Array
        self._starts: Ids

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the weighted sums."""
        self._x, self._starts = require_matrix(self, inputs[0], self.size), require_starts(self, inputs[0])
        w = self._weight.matrix(self._length, self.size)
        result: Array = self._x * w[0]
        for i in range(1, min(self._length, len(self._x))):
            piece = self._x[i:] * w[i]
            piece[self._find_edge(i)] = 0
            result[:-i] += piece
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add the sums of g_t * x_(t + i) over t to the gradient of w_i, and return the sums of w_i * g_(t - i) over i.

        g is the gradient of y.
        """
        w = self._weight.matrix(self._length, self.size)
        of_w: Array = np.zeros_like(w)
        result: Array = gradient * w[0]
        of_w[0] = np.einsum("ij,ij->j", gradient, self._x)
        for i in range(1, min(self._length, len(self._x))):
            piece = gradient[:-i].copy()
            piece[self._find_edge(i)] = 0
            of_w[i] = np.einsum("ij,ij->j", piece, self._x[i:])
            result[i:] += piece * w[i]
        if not self._weight.is_static:
            self._weight.add_gradient(of_w)
        return [result if wanted[0] else None]

    def _find_edge(self, i: int) -> Ids:
        """Return the frames t for which frame t + i is not in the sequence of t."""
        lengths = np.minimum(np.diff(self._starts), i)
        frames = join_ranges(self._starts[1:] - lengths, lengths)
        return frames[frames < len(self._x) - i]

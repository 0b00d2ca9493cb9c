"""Conditional random fields over the labels of a sequence: the cost of the correct labels, and the best labels.

The score of the labels s_1 ... s_T of frames x_1 ... x_T is

    start[s_1] + sum of x_t[s_t] + sum of move[s_(t-1)][s_t] + end[s_T]

where start, move and end are parameters. The probability of a label sequence is exp(score) divided by the sum of
exp(score) over all label sequences of the same length. All computations are in double precision. Each step computes one
frame of every sequence of a batch, in the packed order of trainer/layers/ragged.py.

Source: spec/config.md 6; gserver/layers/LinearChainCRF.cpp, CRFLayer.cpp, CRFDecodingLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paddle_base.kernels.chain import LabelChain
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids, find_bad_id
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_starts, require_weight
from trainer.layers.ragged import PackedOrder


@dataclass(frozen=True)
class Scores:
    """The three parts of the parameter: start, end and move.

    Shapes: start, end: (classes,); move: (classes, classes), from the label of the row to the label of the column.
    """

    start: Array
    end: Array
    move: Array

    @classmethod
    def of(cls, flat: Array, classes: int) -> Scores:
        """Return the parts of a parameter: row 0 is start, row 1 is end, and all further rows are move."""
        matrix = flat.reshape(classes + 2, classes).astype(np.float64)
        return cls(start=matrix[0], end=matrix[1], move=matrix[2:])


class Chain:
    """The sums of the forward algorithm over all paths of a batch, in packed order.

    Probabilities are scaled at every frame, so that they neither underflow nor overflow.
    """

    def __init__(self, x: Array, packing: PackedOrder, scores: Scores) -> None:
        self._packing, self._scores = packing, scores
        ordered = x[packing.rows].astype(np.float64)
        largest = ordered.max(axis=1, initial=-np.inf, keepdims=True)
        self._emit = np.exp(ordered - largest)
        self._move_shift = scores.move.max(initial=-np.inf)
        self._move = np.exp(scores.move - self._move_shift)
        self._alpha = np.empty_like(ordered)
        log_scale = largest[:, 0]
        for step in range(packing.steps):
            begin, end = packing.begins[step], packing.begins[step + 1]
            if step:
                alpha = self._alpha[packing.span_before(step)] @ self._move
                alpha *= self._emit[begin:end]
                log_scale[begin:end] += self._move_shift
            else:
                alpha = self._emit[:end] * np.exp(scores.start - scores.start.max())
                log_scale[:end] += scores.start.max()
            # each frame is scaled, because the products of a long sequence would become 0
            total = alpha.sum(axis=1)
            log_scale[begin:end] += np.log(total)
            np.divide(alpha, total[:, None], out=self._alpha[begin:end])
        self._log_scale = log_scale

    def log_totals(self, starts: Ids) -> Array:
        """Return the logarithm of the sum of exp(score) over all paths, for each sequence; 0 for an empty sequence."""
        frames = self._packing.frames
        of_frame = np.empty(frames)
        of_frame[self._packing.rows] = self._log_scale
        result = np.diff(np.concatenate([[0.0], np.cumsum(of_frame)])[starts])
        filled = np.flatnonzero(np.diff(starts))
        last = self._alpha[self._packing.places[starts[1:][filled] - 1]]
        largest = self._scores.end.max()
        result[filled] += np.log(last @ np.exp(self._scores.end - largest)) + largest
        return result

    def marginals(self, weights: Array) -> tuple[Array, Scores]:
        """Return the probability of each label at each frame, and the expected number of uses of each parameter.

        Args: weights: (frames,), the weight of each packed row in the expected numbers.
        Shapes: the probabilities: (frames, classes), in the order of the input.
        """
        packing = self._packing
        beta = np.empty_like(self._alpha)
        # Each row of `ahead` is emit * beta times a factor. Because of the factor, the probabilities of all moves from
        # the previous frame to the frame of the row add up to 1.
        ahead = np.empty_like(self._alpha)
        # a factor, which the division by the sums removes; without it, exp() may overflow
        last = np.exp(self._scores.end - self._scores.end.max())
        for step in reversed(range(packing.steps)):
            begin, end = packing.begins[step], packing.begins[step + 1]
            going_on = packing.live[step + 1] if step + 1 < packing.steps else 0
            beta[begin + going_on : end] = last
            if going_on:
                following = slice(end, end + going_on)
                seen = (self._emit[following] * beta[following]) / beta[following].sum(axis=1, keepdims=True)
                np.matmul(seen, self._move.T, out=beta[begin : begin + going_on])
                here = self._alpha[begin : begin + going_on]
                norm = np.einsum("ij,ij->i", here, beta[begin : begin + going_on])
                ahead[following] = seen / norm[:, None]
        p = self._alpha * beta
        p /= p.sum(axis=1, keepdims=True)
        first = packing.begins[min(1, packing.steps)]
        weighted = ahead[first:] * weights[first:, None]
        move = self._move * (self._alpha[packing.previous].T @ weighted)
        is_last = np.ones(packing.frames, np.bool_)
        is_last[packing.previous] = False
        expected = Scores(
            start=weights[:first] @ p[:first],
            end=weights[is_last] @ p[is_last],
            move=move,
        )
        return p[packing.places], expected


def path_scores(x: Array, labels: Ids, starts: Ids, scores: Scores) -> Array:
    """Return, for each sequence, the score of the given labels; 0 for an empty sequence."""
    of_frame = x[np.arange(len(x)), labels].astype(np.float64)
    firsts, lasts, pairs = _find_places(starts)
    of_frame[firsts] += scores.start[labels[firsts]]
    of_frame[lasts] += scores.end[labels[lasts]]
    of_frame[pairs] += scores.move[labels[pairs - 1], labels[pairs]]
    result: Array = np.diff(np.concatenate([[0.0], np.cumsum(of_frame)])[starts])
    return result


def count_parts(labels: Ids, starts: Ids, weights: Array, classes: int) -> Scores:
    """Return how often the paths use each parameter; a frame with the weight w counts w times."""
    firsts, lasts, pairs = _find_places(starts)

    def count(keys: Ids, places: Ids, size: int) -> Array:
        sums: Array = np.bincount(keys, weights[places], size).astype(np.float64, copy=False)
        return sums

    moves = count(labels[pairs - 1] * classes + labels[pairs], pairs, classes * classes)
    return Scores(
        start=count(labels[firsts], firsts, classes),
        end=count(labels[lasts], lasts, classes),
        move=moves.reshape(classes, classes),
    )


def find_best_path(x: Array, packing: PackedOrder, scores: Scores) -> Ids:
    """Return the labels with the highest score, (frames,); if scores are equal, select the smaller label."""
    ordered = x[packing.rows].astype(np.float64)
    came_from = np.empty(ordered.shape, np.int64)
    to_from = np.ascontiguousarray(scores.move.T)  # transposed, because a maximum over adjacent elements is faster
    for step in range(packing.steps):
        begin, end = packing.begins[step], packing.begins[step + 1]
        if step == 0:
            ordered[:end] += scores.start
            continue
        ways = ordered[packing.span_before(step), None, :] + to_from
        best = ways.argmax(axis=2)
        came_from[begin:end] = best
        ordered[begin:end] += np.take_along_axis(ways, best[:, :, None], axis=2)[:, :, 0]
    labels = np.empty(packing.frames, np.int64)
    for step in reversed(range(packing.steps)):
        begin, end = packing.begins[step], packing.begins[step + 1]
        going_on = packing.live[step + 1] if step + 1 < packing.steps else 0
        labels[begin + going_on : end] = (ordered[begin + going_on : end] + scores.end).argmax(axis=1)
        following = np.arange(end, end + going_on)
        labels[begin : begin + going_on] = came_from[following, labels[following]]
    return labels[packing.places]


def _find_places(starts: Ids) -> tuple[Ids, Ids, Ids]:
    """Return the first and the last frame of every sequence, and all frames with a predecessor."""
    filled = np.diff(starts) > 0
    firsts, lasts = starts[:-1][filled], starts[1:][filled] - 1
    has_before = np.ones(starts[-1], np.bool_)
    has_before[firsts] = False
    return firsts, lasts, np.flatnonzero(has_before)


def require_labels(layer: Layer, label: Argument, starts: Ids, classes: int) -> Ids:
    """Return the labels of the frames.

    Raises: ConfigError: the labels are not ids. DataError: the number of labels is wrong, or a label is out of range.
    """
    if label.ids is None:
        raise ConfigError(f"{layer} needs labels of ids (integer_value_sequence)")
    if len(label.ids) != starts[-1] or label.starts is None or not np.array_equal(label.starts, starts):
        raise DataError(f"{layer}: its input and its labels must be sequences of the same lengths")
    wrong = find_bad_id(label.ids, classes)
    if wrong is not None:
        raise DataError(f"{layer}: label {wrong} is not in [0, {classes})")
    return label.ids.astype(np.int64, copy=False)


class CrfLayer(Layer):
    """The cost of the labels of each sequence.

    Inputs: x: (frames, classes), label ids, and optionally the weight (sequences, 1). Parameter: (classes + 2,
    classes). `coeff` multiplies only the gradients of this cost. In most other costs, `coeff` also multiplies gradients
    that other costs have added.
    """

    is_likelihood = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 3)
        self._parameter = require_weight(self, 0, self.size * (self.size + 2))
        self._starts: Ids
        self._labels: Ids
        self._weights: Array | None
        self._packing: PackedOrder
        self._chain: Chain | LabelChain

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return -ln of the probability of the labels, (sequences, 1); 0 for empty sequences.

        Raises: ConfigError, DataError: see `require_labels`. DataError: there are more or fewer weights than sequences.
        """
        x = require_matrix(self, inputs[0], self.size)
        self._starts = starts = require_starts(self, inputs[0])
        self._labels = require_labels(self, inputs[1], starts, self.size)
        self._weights = require_matrix(self, inputs[2], 1) if len(inputs) > 2 else None
        costs: Array = self._find_costs(x).astype(x.dtype).reshape(-1, 1)
        if self._weights is not None and len(self._weights) != len(costs):
            raise DataError(
                f"{self}: {len(self._weights)} weights for {len(costs)} sequences; the weight input must have one row "
                "for each sequence, so declare it as dense_vector(1), not as a sequence type"
            )
        return Argument(value=costs if self._weights is None else costs * self._weights)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of x: the expected minus the actual label counts. Label and weight have no gradient."""
        factors = gradient[:, 0] * self.config.coeff
        if self._weights is not None:
            factors = factors * self._weights[:, 0]
        result, of_scores = self._find_gradients(factors.astype(np.float64))
        if not self._parameter.is_static:
            self._parameter.add_gradient(of_scores)
        return [result.astype(gradient.dtype, copy=False), *[None] * (len(wanted) - 1)]

    def _find_costs(self, x: Array) -> Array:
        """Return the cost of each sequence, (sequences,) in double precision."""
        matrix = self._parameter.value.reshape(self.size + 2, self.size).astype(np.float64)
        compiled = LabelChain(x, self._labels, self._starts, matrix, np.empty((2, *x.shape)))
        if compiled.fits():
            self._chain = compiled
            return compiled.costs()
        self._packing = PackedOrder(self._starts, is_reversed=False)
        scores = Scores.of(self._parameter.value, self.size)
        self._chain = Chain(x, self._packing, scores)
        return self._chain.log_totals(self._starts) - path_scores(x, self._labels, self._starts, scores)

    def _find_gradients(self, factors: Array) -> tuple[Array, Array]:
        """Return the gradients of x and of the parameter; the costs are multiplied by `factors`, (sequences,)."""
        if isinstance(self._chain, LabelChain):
            return self._chain.gradients(factors)
        of_frame = np.repeat(factors, np.diff(self._starts))
        result, expected = self._chain.marginals(of_frame[self._packing.rows])
        actual = count_parts(self._labels, self._starts, of_frame, self.size)
        parts = [expected.start - actual.start, expected.end - actual.end, *(expected.move - actual.move)]
        result[np.arange(len(result)), self._labels] -= 1
        result *= of_frame[:, None]
        return result, np.concatenate(parts)


class CrfDecodingLayer(Layer):
    """The best labels of each sequence.

    Inputs: x: (frames, classes), and optionally label ids. The parameter has the form of CrfLayer's parameter. With
    label ids, the output also has a value for each frame: 1 if the best label differs from the given label, else 0.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 2)
        self._parameter = require_weight(self, 0, self.size * (self.size + 2))

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the best labels as ids and, if the layer has a label input, the errors, (frames, 1)."""
        x = require_matrix(self, inputs[0], self.size)
        starts = require_starts(self, inputs[0])
        found = find_best_path(x, PackedOrder(starts, is_reversed=False), Scores.of(self._parameter.value, self.size))
        errors = None
        if len(inputs) > 1:
            labels = require_labels(self, inputs[1], starts, self.size)
            errors = (found != labels).astype(x.dtype).reshape(-1, 1)
        return Argument(value=errors, ids=found, starts=starts, sub_starts=inputs[0].sub_starts)

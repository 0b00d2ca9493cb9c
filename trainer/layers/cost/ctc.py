"""Connectionist temporal classification: the cost of a sequence of labels for a longer sequence of frames.

Blanks are inserted before, between and after the labels; labels and blanks are the positions of a path. A path goes
from one of the first two positions to one of the last two positions. From one frame to the next, a path stays, advances
by one position, or advances by two positions over a blank between different labels. The probability of a path is the
product of the probabilities of its positions. The cost is -ln of the sum of the probabilities of all paths. Each step
computes one frame of every sequence of a batch, in double precision.

Source: Graves 2006; spec/config.md 6; gserver/layers/LinearChainCTC.cpp, CTCLayer.cpp, WarpCTCLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Ids, find_bad_id
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_starts
from trainer.layers.ragged import PackedOrder

Bools = npt.NDArray[np.bool_]
TINY = np.finfo(np.float32).tiny


class Widened:
    """The labels of a batch with their blanks, one row for each sequence in packed order, padded with blanks.

    Shapes: labels, may_skip: (sequences, positions); counts: (sequences,), the number of used positions.
    """

    def __init__(self, ids: Ids, starts: Ids, order: Ids, blank: int) -> None:
        lengths = np.diff(starts)[order]
        self.counts: Ids = 2 * lengths + 1
        places = int(self.counts.max(initial=1))
        self.labels: Ids = np.full((len(order), places), blank, np.int64)
        number = np.arange(places // 2)
        is_label = number < lengths[:, None]
        self.labels[:, 1::2][is_label] = ids[(starts[:-1][order][:, None] + number)[is_label]]
        self.may_skip: Bools = np.zeros(self.labels.shape, np.bool_)
        self.may_skip[:, 2:] = (self.labels[:, 2:] != blank) & (self.labels[:, 2:] != self.labels[:, :-2])
        self.is_used: Bools = np.arange(places) < self.counts[:, None]
        repeats = (is_label[:, 1:] & (self.labels[:, 3::2] == self.labels[:, 1:-2:2])).sum(axis=1)
        self.least_frames: Ids = lengths + repeats


def _shift(log_p: Array, by: int) -> Array:
    """Return the columns shifted to the right by `by`, or to the left if `by` is negative; free columns become -inf."""
    result = np.full_like(log_p, -np.inf)
    if by > 0:
        result[:, by:] = log_p[:, :-by]
    else:
        result[:, :by] = log_p[:, -by:]
    return result


def sum_paths(log_y: Array, packing: PackedOrder, widened: Widened) -> tuple[Array, Array]:
    """Return ln of the sum of all paths' probabilities, and the probability of each position at each frame.

    For a sequence with too few frames for its labels, the results are -inf and zeros.

    Shapes: log_y: (frames, classes), packed; results: (sequences,), (frames, positions), packed.
    """
    begins, live = packing.begins, packing.live
    rows = [np.arange(begins[step], begins[step + 1])[:, None] for step in range(packing.steps)]
    at_place = [log_y[rows[step], widened.labels[: live[step]]] for step in range(packing.steps)]
    alpha: list[Array] = []
    beta: list[Array] = []
    for step in range(packing.steps):
        n = live[step]
        if step == 0:
            before = np.full(at_place[0].shape, -np.inf)
            before[:, :2] = 0  # a path begins with a blank or with the first label
            before[~widened.is_used[:n]] = -np.inf
        else:
            last = alpha[-1][:n]
            before = np.logaddexp(last, _shift(last, 1))
            skipped = np.where(widened.may_skip[:n], _shift(last, 2), -np.inf)
            before = np.where(widened.is_used[:n], np.logaddexp(before, skipped), -np.inf)
        alpha.append(before + at_place[step])
    for step in reversed(range(packing.steps)):
        n = live[step]
        # a path ends with the last label, or with the blank after it
        after = np.where(np.arange(widened.labels.shape[1]) >= widened.counts[:n, None] - 2, 0.0, -np.inf)
        after[~widened.is_used[:n]] = -np.inf
        if beta:
            going_on = len(beta[-1])
            ahead = beta[-1] + at_place[step + 1]
            skipping = _shift(np.where(widened.may_skip[:going_on], ahead, -np.inf), -2)
            after[:going_on] = np.logaddexp(np.logaddexp(ahead, _shift(ahead, -1)), skipping)
        beta.append(after)
    beta.reverse()
    log_total = np.full(len(widened.counts), -np.inf)
    occupied = np.zeros((packing.frames, widened.labels.shape[1]))
    for step in range(packing.steps):
        both = alpha[step] + beta[step]
        if step == 0:
            log_total[: live[0]] = np.logaddexp.reduce(both, axis=1)
        n = live[step]
        # for an impossible sequence, -inf minus -inf would be NaN
        possible = np.isfinite(log_total[:n])
        occupied[begins[step] : begins[step + 1]][possible] = np.exp(both[possible] - log_total[:n][possible, None])
    return log_total, occupied


class _Ctc(Layer):
    """The cost of each sequence; the cost is 0 for a sequence with too few frames for its labels.

    Inputs: x: (frames, classes), and label ids in sequences.
    """

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self.blank = self.size - 1
        self._packing: PackedOrder
        self._starts: Ids
        self._occupied: Array
        self._is_possible: Bools

    def log_probabilities(self, x: Array) -> Array:
        """Return ln of the probability of each class, in double precision. A subclass may keep x for `descend`."""
        raise NotImplementedError

    def descend(self, expected: Array, is_possible: Bools) -> Array:
        """Return the gradient of x.

        Shapes: expected: (frames, classes), the expected count of each class on the paths.
        """
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs, (sequences, 1)."""
        x = require_matrix(self, inputs[0], self.size)
        self._starts = starts = require_starts(self, inputs[0])
        ids, label_starts = self._require_labels(inputs[1], len(starts) - 1)
        self._packing = packing = PackedOrder(starts, is_reversed=False)
        widened = Widened(ids, label_starts, packing.order, self.blank)
        self._labels = widened.labels
        log_total, self._occupied = sum_paths(self.log_probabilities(x)[packing.rows], packing, widened)
        is_possible = np.diff(starts)[packing.order] >= np.maximum(widened.least_frames, 1)
        costs: Array = np.zeros((len(log_total), 1), x.dtype)
        costs[packing.order[is_possible], 0] = -log_total[is_possible]
        self._is_possible = np.zeros(len(log_total), np.bool_)
        self._is_possible[packing.order] = is_possible
        return Argument(value=costs)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of x; the labels have no gradient."""
        packing, lengths = self._packing, np.diff(self._starts)
        step_rows = np.concatenate([np.arange(live) for live in packing.live] or [np.zeros(0, np.int64)])
        keys = np.arange(packing.frames)[:, None] * self.size + self._labels[step_rows]
        sums: Array = np.bincount(keys.reshape(-1), self._occupied.reshape(-1), packing.frames * self.size).astype(
            np.float64, copy=False
        )
        expected = sums.reshape(-1, self.size)[packing.places]
        result = self.descend(expected, np.repeat(self._is_possible, lengths))
        factors = gradient[:, 0] / (np.maximum(lengths, 1) if self.config.norm_by_times else 1)
        result *= np.repeat(factors, lengths)[:, None]
        return [result.astype(gradient.dtype, copy=False), None]

    def _require_labels(self, label: Argument, sequences: int) -> tuple[Ids, Ids]:
        if label.ids is None or label.starts is None:
            raise ConfigError(f"{self} needs labels of ids in sequences (integer_value_sequence)")
        if len(label.starts) - 1 != sequences:
            raise DataError(f"{self}: the input has {sequences} sequences, but the label has {len(label.starts) - 1}")
        wrong = find_bad_id(label.ids, self.size)
        if wrong is None and (label.ids == self.blank).any():
            wrong = self.blank
        if wrong is not None:
            raise DataError(f"{self}: label {wrong} is not in [0, {self.size}), or is the blank, {self.blank}")
        return label.ids.astype(np.int64, copy=False), label.starts


class CtcLayer(_Ctc):
    """The input contains probabilities; the blank is the last class."""

    _y: npt.NDArray[np.floating[Any]]

    def log_probabilities(self, x: Array) -> Array:
        """Return ln x."""
        self._y = np.maximum(x.astype(np.float64), TINY)
        logarithms: Array = np.log(self._y)
        return logarithms

    def descend(self, expected: Array, is_possible: Bools) -> Array:
        """Return -expected / x."""
        return -expected / self._y


class WarpCtcLayer(_Ctc):
    """The layer applies a softmax to the input; `blank` is the number of the blank class."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.blank = config.blank
        if not 0 <= self.blank < self.size:
            raise ConfigError(f"{self}: blank {self.blank} is not in [0, {self.size})")
        self._log_y: Array

    def log_probabilities(self, x: Array) -> Array:
        """Return ln of the softmax of x."""
        shifted = x.astype(np.float64) - x.max(axis=1, initial=-np.inf, keepdims=True)
        self._log_y = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return self._log_y

    def descend(self, expected: Array, is_possible: Bools) -> Array:
        """Return the softmax of x minus `expected`, or zero for a sequence with too few frames."""
        result: Array = np.exp(self._log_y) - expected
        result[~is_possible] = 0
        return result

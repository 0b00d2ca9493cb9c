"""Ranking costs: rank-cost ranks pairs of rows, and lambda_cost ranks whole lists by their NDCG.

DCG is the discounted cumulative gain of a ranking. NDCG is the DCG divided by the largest possible DCG.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle_base.kernels.rows import sum_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_same_rows, require_starts
from trainer.layers.ties import sort_all, sort_largest


class RankCost(Layer):
    """The cost is ln(1 + e^o) - t o, where o = left - right and t is the probability that left ranks above right.

    Inputs: left, right, label t and optionally the weight, each (rows, 1); the label may be ids. `coeff` has no effect,
    as in v0.10.
    """

    is_cost = True
    applies_coeff = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 4)
        self._margin: Array
        self._target: Array
        self._weight: Array | None = None

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs."""
        left, right = require_matrix(self, inputs[0], 1), require_matrix(self, inputs[1], 1)
        label = inputs[2]
        if label.ids is not None:
            self._target = label.ids.astype(left.dtype)[:, None]
        else:
            self._target = require_matrix(self, label, 1)
        self._weight = require_matrix(self, inputs[3], 1) if len(inputs) > 3 else None
        require_same_rows(self, [left, right, self._target, left if self._weight is None else self._weight])
        self._margin = left - right
        costs: Array = np.logaddexp(0, self._margin, dtype=left.dtype) - self._target * self._margin
        return inputs[0].with_value(costs if self._weight is None else costs * self._weight)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return 1 / (1 + e^-o) - t and its negative."""
        part = np.exp(-np.logaddexp(0, -self._margin, dtype=self._margin.dtype)) - self._target
        part *= gradient
        if self._weight is not None:
            part *= self._weight
        return [part if wanted[0] else None, -part if wanted[1] else None, *[None] * (len(wanted) - 2)]


class LambdaCost(Layer):
    """The output in every row is the NDCG of the row's list; a list is a sequence.

    The gradient is the gradient of LambdaRank, which differs from the derivative of the NDCG.

    Inputs: the network's scores o, and the true scores; both (rows, 1). DCG is the sum over the first NDCG_num
    positions i of (2^true - 1) / ln(i + 2). The gradient is a sum over the pairs of documents at positions i < j of the
    true order, where i is one of the first max_sort_size positions (-1: all positions). Equal scores are in the order
    in which the sorts of v0.10 leave them (trainer/layers/ties.py). A pair adds
    p = -|change| / (1 + e^(o_i - o_j)) / best DCG to the gradient of document i, and -p to the gradient of document j,
    where change = (2^true_i - 2^true_j) / (ln(i + 2) - ln(j + 2)). If j is not one of the first max_sort_size
    positions, ln(j + 2) is replaced by 0. v0.10 uses the same formula (gserver/layers/CostLayer.cpp), although the real
    change of the DCG is different.

    Raises (forward): DataError: a list is shorter than NDCG_num, or all its true scores are zero.
    """

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._places: int = config.NDCG_num
        self._sorted: int = config.max_sort_size
        if self._places < 1 or (self._sorted != -1 and self._sorted < self._places):
            raise ConfigError(f"{self}: NDCG_num must be over 0, and max_sort_size must be -1 or at least NDCG_num")
        self._bounds: list[int] = []
        self._scores: Array
        self._truth: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return, for each row, the NDCG of its list."""
        self._bounds = require_starts(self, inputs[0]).tolist()
        scores, truth = require_matrix(self, inputs[0], 1), require_matrix(self, inputs[1], 1)
        require_same_rows(self, [scores, truth])
        self._scores, self._truth = scores[:, 0], truth[:, 0]
        result: Array = np.empty_like(scores)
        for begin, end in itertools.pairwise(self._bounds):
            if begin < end:
                order = sort_largest(self._scores[begin:end].tolist(), self._places)
                truth_in_order = self._truth[begin:end][order]
                result[begin:end] = self._sum_gains(truth_in_order) / self._best_gain(begin, end)
        return inputs[0].with_value(result)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return, for each document, the sum over its pairs, multiplied by the gradient of the output."""
        result: Array = np.zeros_like(gradient)
        for begin, end in itertools.pairwise(self._bounds):
            if begin < end:
                best = self._best_gain(begin, end)
                result[begin:end, 0] = self._sum_pairs(self._scores[begin:end], self._truth[begin:end], best)
        result *= gradient
        return [result if wanted[0] else None, None]

    def _sum_pairs(self, scores: Array, truth: Array, best: np.floating[Any]) -> Array:
        """Return, for each document, the sum over its pairs, added in the order of v0.10.

        The order matters. The sums of a list add up to 0, except for rounding errors. The gradient of a bias therefore
        consists only of rounding errors.
        """
        many = len(truth)
        first = many if self._sorted == -1 else min(self._sorted, many)
        keys = truth.tolist()
        order = sort_all(keys) if first == many else sort_largest(keys, first)
        logarithms = np.log(np.arange(many) + 2)
        distances = logarithms[:first, None] - np.where(np.arange(many) < first, logarithms, 0)
        np.fill_diagonal(distances, 1)  # a document paired with itself adds 0; the value 1 avoids a division by 0
        gains, o = np.exp2(truth[order].astype(np.float64)), scores[order]
        changes = np.abs((gains[:first, None] - gains) / distances).astype(o.dtype)
        powers = np.exp((o[:first, None] - o).astype(np.float64)).astype(o.dtype)
        pairs = np.zeros((many, many), o.dtype)
        pairs[:first] = np.triu(-changes / (1 + powers) / best, k=1)
        result: Array = np.empty_like(o)
        result[order] = sum_columns(pairs.T - pairs)
        return result

    def _sum_gains(self, truth: Array) -> np.floating[Any]:
        """Return the DCG of documents in the given order, rounded after every document."""
        gain = truth.dtype.type(0)
        for place, one in enumerate(truth[: self._places].tolist()):
            gain = truth.dtype.type(float(gain) + (2.0**one - 1) / math.log(place + 2))
        return gain

    def _best_gain(self, begin: int, end: int) -> np.floating[Any]:
        if end - begin < self._places:
            raise DataError(f"{self}: a list has {end - begin} documents, less than NDCG_num {self._places}")
        best = self._sum_gains(-np.sort(-self._truth[begin:end]))
        if best <= 0:
            raise DataError(f"{self}: the list of rows {begin} to {end} has no document with a true score over 0")
        return best

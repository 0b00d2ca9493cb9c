"""The ratio of pairs in the right order to pairs in the wrong order, within each query.

Source: spec/trainer.md 6.7.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from paddle_base.runtime import glog
from trainer.arrays.arguments import Argument
from trainer.arrays.encoding import decode_array, encode_array
from trainer.evaluators.base import Evaluator, Numbers, evaluates


class Judgements:
    """The rows (query, score, label, weight) of some batches. All rows are kept, because the result needs all pairs."""

    def __init__(self, *parts: Numbers) -> None:
        self._parts = list(parts)
        self._pairs: tuple[float, float, float] | None = None

    def __iadd__(self, other: Judgements) -> Self:
        self._parts += other._parts
        self._pairs = None
        return self

    def state(self) -> Any:
        """Return the rows."""
        return encode_array(np.concatenate([np.zeros((0, 4)), *self._parts]))

    def put_back(self, state: Any) -> None:
        """Restore the rows."""
        self._parts, self._pairs = [decode_array(state)], None

    def pairs(self) -> tuple[float, float, float]:
        """Return three sums of weights: of pairs in the right order, in the wrong order, and with equal scores."""
        if self._pairs is None:
            self._pairs = self._count()
        return self._pairs

    def _count(self) -> tuple[float, float, float]:
        rows = np.concatenate([np.zeros((0, 4)), *self._parts])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        bounds = [0, *(np.flatnonzero(np.diff(rows[:, 0])) + 1).tolist(), len(rows)]
        sums = np.zeros(3)
        for start, stop in itertools.pairwise(bounds):
            sums += _count_query(*rows[start:stop, 1:].T)
        return float(sums[0]), float(sums[1]), float(sums[2])


def _count_query(score: Numbers, label: Numbers, weight: Numbers) -> Numbers:
    """Return the sums of `Judgements.pairs` for one query. The loop over rows saves the memory of a matrix of pairs."""
    sums = np.zeros(3)
    for i in range(len(score) - 1):
        agreement = np.sign(score[i] - score[i + 1 :]) * np.sign(label[i] - label[i + 1 :])
        weights = np.where(label[i] != label[i + 1 :], (weight[i] + weight[i + 1 :]) / 2, 0.0)
        sums += [weights[agreement > 0].sum(), weights[agreement < 0].sum(), weights[agreement == 0].sum()]
    return sums


@evaluates("pnpair")
class Pnpair(Evaluator):
    """The ratio of pairs in the right order to pairs in the wrong order. Both rows of a pair belong to the same query.

    Inputs: score, label, query id and, optionally, weight.
    """

    least_inputs, most_inputs = 3, 4

    def nothing(self) -> Judgements:
        """Return a measure that has no rows."""
        return Judgements()

    def measure(self, outputs: Mapping[str, Argument]) -> Judgements:
        """Return the batch's rows."""
        inputs = self.inputs(outputs)
        for other, role in zip(inputs[1:], ("label", "query id", "weight"), strict=False):
            self.require_equal_rows(inputs[0], other, role)
        score = self.numbers(inputs[0], "score")[:, -1]
        weights = np.ones(len(score)) if len(inputs) < 4 else self.weights(inputs[3])
        columns = (self.label_numbers(inputs[2], "query id"), score, self.label_numbers(inputs[1]), weights)
        return Judgements(np.stack([np.asarray(column, np.float64) for column in columns], axis=1))

    def finish(self, total: Judgements) -> None:
        """Log the three sums."""
        right, wrong, equal = total.pairs()
        glog.info(f" calc total pos pair: {right:g} calc total neg pair: {wrong:g} calc total special pair: {equal:g}")

    def metrics(self, total: Judgements) -> dict[str, float]:
        """Return the ratio. Without pairs in the wrong order, it is the sum for the pairs in the right order."""
        right, wrong, _ = total.pairs()
        return {self.name: float(right / (wrong if wrong > 0 else 1.0))}

    def text(self, total: Judgements) -> str:
        """Return ` pos/neg=x`."""
        return f" pos/neg={self.metrics(total)[self.name]:g}"

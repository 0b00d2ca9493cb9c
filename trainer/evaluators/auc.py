"""Two areas under the ROC curve: the area over all samples, and the mean of the areas of all sequences.

Source: spec/trainer.md 6.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument, Ids
from trainer.arrays.encoding import decode_array, encode_array
from trainer.evaluators.base import Evaluator, Numbers, Share, evaluates, ratio
from trainer.layers.ties import sort_all

BINS = (1 << 24) - 1  # the bin of score 1


class Histogram:
    """The sums of the weights of negatives and of positives in each non-empty bin of scores.

    New batches are kept separately. They are merged when they have over 10,000 bins more than the merged part. The mean
    time to add a batch is therefore about proportional to the size of the batch.
    """

    def __init__(self, bins: Ids, weights: Numbers) -> None:
        self._bins, self._weights = [bins], [weights]
        self._merged = 0

    def __iadd__(self, other: Histogram) -> Self:
        self._bins += other._bins
        self._weights += other._weights
        if sum(map(len, self._bins)) > 2 * self._merged + 10_000:
            self.merge()
        return self

    def state(self) -> Any:
        """Return the bins and weights of each part, and the number of merged bins, in a form that JSON can store."""
        parts = zip(self._bins, self._weights, strict=True)
        return [[[encode_array(bins), encode_array(weights)] for bins, weights in parts], self._merged]

    def put_back(self, state: Any) -> None:
        """Restore the parts that `state` returned."""
        parts, self._merged = state
        self._bins = [decode_array(bins) for bins, _ in parts]
        self._weights = [decode_array(weights) for _, weights in parts]

    def merge(self) -> tuple[Ids, Numbers]:
        """Return the bins in ascending order, and a matrix with the weights (negatives, positives) of each bin."""
        bins: Ids
        bins, where = np.unique(np.concatenate(self._bins), return_inverse=True)
        given = np.concatenate(self._weights)
        weights: Numbers = np.stack([np.bincount(where, given[:, column], len(bins)) for column in (0, 1)], axis=1)
        self._bins, self._weights, self._merged = [bins], [weights], len(bins)
        return bins, weights


@evaluates("last-column-auc")
class LastColumnAuc(Evaluator):
    """The area under the ROC curve of the last column. Label 0 is negative, and every other label is positive."""

    least_inputs, most_inputs = 2, 3

    def nothing(self) -> Histogram:
        """Return an empty histogram."""
        return Histogram(np.zeros(0, np.int64), np.zeros((0, 2)))

    def measure(self, outputs: Mapping[str, Argument]) -> Histogram:
        """Return the batch's histogram.

        Raises: DataError: a score is not in [0, 1].
        """
        inputs = self.inputs(outputs)
        scores = self.numbers(inputs[0], "prediction")[:, -1].astype(np.float64)
        labels = self.label_numbers(inputs[1])
        self.require_equal_rows(inputs[0], inputs[1], "label")
        wrong = ~((scores >= 0) & (scores <= 1))
        if wrong.any():
            raise DataError(f"{self}: score {scores[wrong.argmax()]:g} is not in [0, 1]; scores must be probabilities")
        weights = np.ones(len(scores)) if len(inputs) < 3 else self.weights(inputs[2])
        positive = np.trunc(labels) != 0  # as in v0.10, a label of numbers is cut to a whole number
        columns = np.stack([np.where(positive, 0.0, weights), np.where(positive, weights, 0.0)], axis=1)
        return Histogram((scores * BINS).astype(np.int64), columns)

    def metrics(self, total: Histogram) -> dict[str, float]:
        """Return the area, which is 0 if there are no positives or no negatives."""
        negatives, positives = total.merge()[1][::-1].T
        gathered = np.cumsum(positives)
        area = float(negatives @ (gathered - positives / 2))
        return {self.name: ratio(area, positives.sum() * negatives.sum())}


@evaluates("rankauc")
class RankAuc(Evaluator):
    """The mean over all sequences of the area under the curve of a sequence's clicks.

    The inputs are score, click and, optionally, page views.
    """

    least_inputs, most_inputs = 2, 3

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Return (sum of areas, sequences)."""
        inputs = self.inputs(outputs)
        starts = self.starts(inputs[0], "score").tolist()
        score, click = (self.numbers(one, role)[:, 0] for one, role in zip(inputs, ("score", "click"), strict=False))
        views = self.numbers(inputs[2], "page views")[:, 0] if len(inputs) > 2 else np.ones_like(click)
        areas = [
            _rank_area(*(x[start:stop].astype(np.float64) for x in (score, click, views)))
            for start, stop in itertools.pairwise(starts)
        ]
        return Share(sum(areas), len(areas))


def _rank_area(score: Numbers, click: Numbers, views: Numbers) -> float:
    """Return the area of one sequence.

    As in v0.10, the divisor is too large if some scores are equal, and depends on their order (trainer/layers/ties.py).
    """
    if not len(score):
        return 0.0
    order = np.array(sort_all(score.tolist()))
    score, click = score[order], click[order]
    missed = views[order] - click
    begins = np.flatnonzero(np.concatenate([[True], score[1:] != score[:-1]]))
    group = np.repeat(np.arange(len(begins)), np.diff([*begins, len(score)]))
    missed_before = np.cumsum(missed) - missed
    running = np.cumsum(missed) - missed_before[begins][group]
    clicks = np.cumsum(np.add.reduceat(click, begins))
    before = np.concatenate([[0.0], clicks[:-1]])
    area = ((clicks + before) * np.add.reduceat(missed, begins)).sum() / 2
    return ratio(area, clicks[-1] * running.sum())

"""Two evaluators: the mean over all rows of a row's sum, and the mean of the last column.

Source: spec/trainer.md 6.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.arrays.arguments import Argument
from trainer.evaluators.base import Evaluator, Numbers, Share, evaluates


class _WeightedMean(Evaluator):
    """A mean over all rows; a subclass computes one number for each row. An optional second input contains weights."""

    least_inputs, most_inputs = 1, 2

    def row_values(self, argument: Argument) -> Numbers:
        """Return one number for each row, (rows,)."""
        raise NotImplementedError

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Return the weighted sum over the rows, and the weighted number of rows."""
        inputs = self.inputs(outputs)
        values = self.row_values(inputs[0])
        if len(inputs) == 1:
            return Share(values.sum(), len(values))
        self.require_equal_rows(inputs[0], inputs[1], "weight")
        weights = self.weights(inputs[1])
        return Share(float(values @ weights), weights.sum())


@evaluates("sum")
class RowSum(_WeightedMean):
    """The mean over all rows of a row's sum. If the rows are ids, it is the mean of the ids."""

    def row_values(self, argument: Argument) -> Numbers:
        """Return the sum of each row."""
        if argument.value is not None:
            return np.asarray(argument.value.sum(axis=1, dtype=np.float64))
        if argument.sparse is not None:
            return np.asarray(argument.sparse.to_dense(np.float64).sum(axis=1))
        return self.labels(argument, "first input").astype(np.float64)


@evaluates("last-column-sum")
class LastColumnSum(_WeightedMean):
    """The mean of the last column over all rows."""

    def row_values(self, argument: Argument) -> Numbers:
        """Return the last column."""
        return self.numbers(argument, "first input")[:, -1].astype(np.float64)

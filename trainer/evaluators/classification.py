"""The classification errors of rows and of sequences.

Source: spec/trainer.md 6.3 and 6.4.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.rows import find_largest
from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import DataError
from trainer.arrays.arguments import Argument, Array, Ids, find_bad_id
from trainer.arrays.text import spell_rows, spell_starts
from trainer.evaluators.base import Evaluator, Share, evaluates
from trainer.evaluators.printers import log_record
from trainer.layers.ties import find_best

Errors = Array | npt.NDArray[np.bool_]


@evaluates("classification_error")
class ClassificationError(Evaluator):
    """The share of rows whose label is not among the `top_k` largest predictions.

    A label may name several classes. Such a label is a dense or sparse vector of zeros and ones, and the error of a row
    is the number of columns on the wrong side of the threshold. For a sparse label the error is divided by the number
    of columns. A row with weight w counts as w rows.
    """

    least_inputs, most_inputs = 2, 3

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        self._top_k: int = config.top_k
        self._threshold: float = config.classification_threshold

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Return the number of wrong rows, and the number of all rows."""
        inputs = self.inputs(outputs)
        errors = self.row_errors(inputs)
        if len(inputs) < 3:
            return Share(float(np.count_nonzero(errors) if errors.dtype == np.bool_ else errors.sum()), len(errors))
        return Share(errors.sum(), self.weights(inputs[2]).sum())

    def text(self, total: Share) -> str:
        """Return `name=x`, or ` top_<k>_error=x`."""
        if self._top_k != 1:
            return f" top_{self._top_k}_error={total.value():g}"
        return super().text(total)

    def row_errors(self, inputs: list[Argument]) -> Errors:
        """Return the weighted error of each row, (rows,). For ids without weights, an error is a bool."""
        prediction, label = self.numbers(inputs[0], "prediction"), inputs[1]
        self.require_equal_rows(inputs[0], label, "label")
        errors: Errors
        if label.ids is not None:
            errors = self._id_errors(prediction, label.ids)
        elif label.sparse is not None:
            wrong = (prediction >= self._threshold) != (label.sparse.to_dense() > 0)
            errors = np.asarray(wrong.sum(axis=1) / prediction.shape[1], np.float64)
        else:
            wrong = (prediction > self._threshold) != (np.asarray(label.value) > self._threshold)
            errors = np.asarray(wrong.sum(axis=1), np.float64)
        return errors if len(inputs) < 3 else errors * self.weights(inputs[2])

    def _id_errors(self, prediction: Array, ids: Ids) -> Errors:
        check_labels(self, ids, prediction.shape[1])
        if self._top_k <= 1:
            return np.asarray(find_largest(prediction) != ids)
        ranked = find_best(prediction, self._top_k)
        return np.asarray((ranked != ids[:, None]).all(axis=1))


@evaluates("seq_classification_error")
class SequenceClassificationError(ClassificationError):
    """The share of sequences that have an error in at least one frame."""

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Return the number of wrong sequences, and the number of all sequences."""
        inputs = self.inputs(outputs)
        starts = self.starts(inputs[0], "prediction")
        before = np.concatenate([[0.0], np.cumsum(self.row_errors(inputs) > 0)])
        return Share((before[starts[1:]] > before[starts[:-1]]).sum(), len(starts) - 1)


@evaluates("classification_error_printer")
class ClassificationErrorPrinter(ClassificationError):
    """Log the weighted error of each row, batch by batch. The text of this evaluator is `name=0`."""

    has_metrics = False

    def measure(self, outputs: Mapping[str, Argument]) -> Share:
        """Log the errors, and return an empty measure."""
        inputs = self.inputs(outputs)
        errors = self.row_errors(inputs)
        record = f"Printer={self.name} Classification Error:\n{spell_rows(errors.reshape(-1, 1).astype(np.float64))}"
        starts = inputs[0].starts
        if starts is not None:
            record += f"Printer={self.name} sequence pos vector:\n{spell_starts(starts)}"
        log_record(record)
        return Share()


def check_labels(evaluator: Evaluator, ids: Ids, width: int) -> None:
    """Check that every label is a column of the prediction.

    Raises: DataError: a label is not a column; the text contains the first such label.
    """
    wrong = find_bad_id(ids, width)
    if wrong is not None:
        raise DataError(
            f"evaluator {evaluator.name}: label {wrong} is not in [0, {width}), the columns of the prediction"
        )

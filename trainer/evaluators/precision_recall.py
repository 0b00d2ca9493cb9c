"""The precision, recall and F1 score of one class, or their averages over all classes.

Source: spec/trainer.md 6.6.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import EvaluatorConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.evaluators.base import Evaluator, Numbers, Sums, evaluates, ratio
from trainer.evaluators.classification import check_labels


@evaluates("precision_recall")
class PrecisionRecall(Evaluator):
    """Count the true positives, false positives and false negatives of each class.

    The text for all classes has the form of v0.9, because v0.10 printed numbers from uninitialised memory.
    """

    least_inputs, most_inputs = 2, 3

    def __init__(self, config: EvaluatorConfig) -> None:
        super().__init__(config)
        self._has_several_labels = False

    def nothing(self) -> Sums:
        """Return empty sums."""
        return Sums()

    def measure(self, outputs: Mapping[str, Argument]) -> Sums:
        """Return the true positives, false positives and false negatives of each class, (3, classes)."""
        inputs = self.inputs(outputs)
        prediction, label = self.numbers(inputs[0], "prediction"), inputs[1]
        rows, width = prediction.shape
        if self.config.positive_label >= width:
            raise ConfigError(
                f"{self}: positive_label {self.config.positive_label} is not in [0, {width}), the columns of the "
                "prediction"
            )
        self.require_equal_rows(inputs[0], label, "label")
        weights = np.ones(rows) if len(inputs) < 3 else self.weights(inputs[2])
        if label.ids is not None:
            check_labels(self, label.ids, width)
            chosen = prediction.argmax(axis=1)
            hit = weights * (chosen == label.ids)
            counts = [
                np.bincount(chosen, hit, width),
                np.bincount(chosen, weights - hit, width),
                np.bincount(label.ids, weights - hit, width),
            ]
            return Sums(counts)
        if label.sparse is None:
            raise ConfigError(f"{self} needs a label of ids, or sparse binary vectors")
        self._has_several_labels = True
        positive = prediction >= self.config.classification_threshold
        true = label.sparse.to_dense() > 0
        return Sums([weights @ (positive & true), weights @ (positive & ~true), weights @ (~positive & true)])

    def metrics(self, total: Sums) -> dict[str, float]:
        """Return the numbers of one class, or the averages over all classes."""
        counts = total.values if total.values.size else np.zeros((3, max(self.config.positive_label, 0) + 1))
        positive = self.config.positive_label
        if positive >= 0:
            precision, recall = _precision(counts)[positive], _recall(counts)[positive]
            return self._name("", precision, recall)
        macro = (_precision(counts).mean(), _recall(counts).mean())
        everything = counts.sum(axis=1, keepdims=True)
        micro = (_precision(everything)[0], _recall(everything)[0])
        found = self._name("macro-average-", *macro) | self._name("micro-average-", *micro)
        if not self._has_several_labels:  # with one label for each row, these three averages are one number
            del found[f"{self.name}.micro-average-recall"], found[f"{self.name}.micro-average-F1-score"]
        return found

    def _name(self, kind: str, precision: float, recall: float) -> dict[str, float]:
        named = {"precision": precision, "recall": recall, "F1-score": _f1(precision, recall)}
        return {f"{self.name}.{kind}{name}": float(number) for name, number in named.items()}

    def text(self, total: Sums) -> str:
        """Return the text for one class, or the averages over all classes."""
        positive = self.config.positive_label
        numbers = {name.removeprefix(f"{self.name}."): number for name, number in self.metrics(total).items()}
        return " ".join(
            [f"positive_label={positive}"] * (positive >= 0)
            + [f"{name}={number:g}" for name, number in numbers.items()]
        )


def _share(part: Numbers, rest: Numbers) -> Numbers:
    whole = part + rest
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0)


def _precision(counts: Numbers) -> Numbers:
    return _share(counts[0], counts[1])


def _recall(counts: Numbers) -> Numbers:
    return _share(counts[0], counts[2])


def _f1(precision: float, recall: float) -> float:
    return ratio(2 * precision * recall, precision + recall)

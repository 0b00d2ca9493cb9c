"""Evaluators: what is printed beside the cost.

A batch is measured once, into (total, count) that several accumulators add up: one since the start of the pass, one
since the last progress line, one per test.

Source: spec/trainer.md 6.2 - 6.4; gserver/evaluators/Evaluator.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from proto.ModelConfig_pb2 import EvaluatorConfig
from pserver.errors import ConfigError, DataError
from trainer.arguments import Argument, Array, Ids, find_bad_id

Measure = tuple[float, float]  # total, count


class Evaluator(Protocol):
    """Measures batches and spells the result."""

    def measure(self, outputs: Mapping[str, Argument]) -> Measure:
        """Return the batch's (total, count), from the outputs of all layers by name."""

    def text(self, total: float, count: float) -> str:
        """Return the sum of measures as it is printed."""


class ClassificationError:
    """The share of rows whose label is not among the largest `top_k` predictions.

    With labels of several classes (dense or sparse 0/1): how many columns are on the wrong side of the threshold,
    divided by the width for sparse labels only. A weight per row counts the row so often.
    """

    def __init__(self, config: EvaluatorConfig) -> None:
        self._config = config
        self._name = config.name

    def measure(self, outputs: Mapping[str, Argument]) -> Measure:
        """Return (wrong rows, rows)."""
        inputs = [outputs[name] for name in self._config.input_layers]
        prediction, label = inputs[0].value, inputs[1]
        if prediction is None:
            raise ConfigError(f"evaluator {self._name} needs a prediction of numbers, not of ids")
        errors = self._row_errors(prediction, label)
        if len(inputs) < 3:
            return float(errors.sum()), float(len(errors))
        weight = inputs[2].value
        if weight is None or weight.shape[1] != 1:
            raise ConfigError(f"evaluator {self._name}: its weight input must be a dense layer of size 1")
        weights = weight[:, 0].astype(np.float64)
        return float(errors @ weights), float(weights.sum())

    def text(self, total: float, count: float) -> str:
        """Return `name=x`, or ` top_<k>_error=x`."""
        value = total / count if count else 0.0
        if self._config.top_k != 1:
            return f" top_{self._config.top_k}_error={value:g}"
        return f"{self._name}={value:g}"

    def _row_errors(self, prediction: Array, label: Argument) -> Array:
        threshold = self._config.classification_threshold
        if label.ids is not None:
            return self._id_errors(prediction, label.ids)
        if label.sparse is not None:
            wrong = (prediction >= threshold) != (label.sparse.to_dense() > 0)
            return np.asarray(wrong.sum(axis=1) / prediction.shape[1], np.float64)
        wrong = (prediction > threshold) != (np.asarray(label.value) > threshold)
        return np.asarray(wrong.sum(axis=1), np.float64)

    def _id_errors(self, prediction: Array, ids: Ids) -> Array:
        wrong = find_bad_id(ids, prediction.shape[1])
        if wrong is not None:
            raise DataError(f"evaluator {self._name}: label {wrong} is not in [0, {prediction.shape[1]}), the width")
        if self._config.top_k <= 1:
            return np.asarray(prediction.argmax(axis=1) != ids, np.float64)
        ranked = np.argsort(-prediction, axis=1, kind="stable")[:, : self._config.top_k]
        return np.asarray((ranked != ids[:, None]).all(axis=1), np.float64)


EVALUATORS: dict[str, type[ClassificationError]] = {"classification_error": ClassificationError}


def make_evaluators(configs: Sequence[EvaluatorConfig]) -> list[Evaluator]:
    """Return the evaluators of a model, in order.

    Raises: ConfigError: naming the evaluator that is not supported yet, and those that are.
    """
    for config in configs:
        if config.type not in EVALUATORS:
            raise ConfigError(
                f"evaluator {config.name}: type '{config.type}' is not supported yet; "
                f"supported are {', '.join(EVALUATORS)}"
            )
    return [EVALUATORS[config.type](config) for config in configs]


class Accumulator:
    """Costs and measures of some batches; the cost is float32 and added batch by batch, as it was."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = evaluators
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.samples = 0
        self._cost = np.float32(0)
        self._measures = [(0.0, 0.0) for _ in self._evaluators]

    def add(self, cost: float, samples: int, measures: Sequence[Measure]) -> None:
        """Add a batch."""
        self.samples += samples
        self._cost += np.float32(cost)
        self._measures = [(a + c, b + d) for (a, b), (c, d) in zip(self._measures, measures, strict=True)]

    def average_cost(self) -> float:
        """Return the cost per sample, a float32."""
        return float(self._cost / np.float32(self.samples)) if self.samples else 0.0

    def text(self) -> str:
        """Return every evaluator's text, each followed by a blank."""
        return "".join(
            f"{evaluator.text(*measure)} " for evaluator, measure in zip(self._evaluators, self._measures, strict=True)
        )

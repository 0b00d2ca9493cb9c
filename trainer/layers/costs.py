"""Cost layers: one value per row; an optional third input weighs the rows, in the cost and in the gradient.

`coeff` is not here: the legacy multiplies the gradient only, and all of it that the prediction layer has gathered so
far, so the network applies it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proto.ModelConfig_pb2 import LayerConfig
from pserver.errors import ConfigError, DataError
from trainer.arguments import Argument, Array, Ids, find_bad_id
from trainer.layers.base import Layer
from trainer.parameters import ParameterTable


class CostLayer(Layer):
    """Inputs: prediction, label [, weight (rows, 1)]. A subclass says what a row costs."""

    is_cost = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 3)
        self._prediction: Array
        self._label: Argument
        self._weight: Array | None = None

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the cost of each row.

        Shapes: prediction: (rows, n); result: (rows,).
        """
        raise NotImplementedError

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return the gradient of the summed cost, (rows, n), after `row_costs` of the same rows."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs, (rows, 1)."""
        prediction, label = inputs[0].value, inputs[1]
        if prediction is None:
            raise ConfigError(f"{self} needs a prediction of numbers, not of ids")
        weight = inputs[2].value if len(inputs) > 2 else None
        if len(inputs) > 2 and (weight is None or weight.shape[1] != 1):
            raise ConfigError(f"{self}: its weight input must be a dense layer of size 1")
        self._prediction, self._label, self._weight = prediction, label, weight
        costs = self.row_costs(prediction, label).reshape(-1, 1)
        return Argument(value=costs if weight is None else costs * weight)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the prediction; label and weight have none."""
        result = self.row_gradients(self._prediction, self._label)
        result *= gradient if self._weight is None else gradient * self._weight
        return [result, *[None] * (len(wanted) - 1)]


class CrossEntropyCost(CostLayer):
    """-ln p[label] of rows of probabilities."""

    _places: tuple[Ids, Ids]  # the row and the label of each p[label]
    _picked: Array

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return -ln p[label]; infinite where p is 0."""
        if label.ids is None:
            raise ConfigError(f"{self} needs a label of ids (integer_value)")
        wrong = find_bad_id(label.ids, prediction.shape[1])
        if wrong is not None:
            raise DataError(f"{self}: label {wrong} is not in [0, {prediction.shape[1]}), the prediction's size")
        self._places = np.arange(len(prediction)), label.ids
        self._picked = prediction[self._places]
        costs: Array = -np.log(self._picked)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return -1 / p[label] at the label, zero elsewhere."""
        result: Array = np.zeros_like(prediction)
        result[self._places] = -1 / self._picked
        return result


class SquareErrorCost(CostLayer):
    """Sum over the columns of (prediction - label)^2, without a factor 1/2."""

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the squared distances."""
        difference = prediction - self._target(prediction, label)
        costs: Array = np.einsum("ij,ij->i", difference, difference)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return 2 * (prediction - label)."""
        result: Array = 2 * (prediction - self._target(prediction, label))
        return result

    def _target(self, prediction: Array, label: Argument) -> Array:
        target = label.sparse.to_dense(prediction.dtype) if label.sparse is not None else label.value
        if target is None:
            raise ConfigError(f"{self} needs a label of numbers (dense_vector), not ids")
        if target.shape != prediction.shape:
            raise ConfigError(f"{self}: the label has {target.shape[1]} columns, the prediction {prediction.shape[1]}")
        return target


LAYERS: dict[str, type[Layer]] = {
    "multi-class-cross-entropy": CrossEntropyCost,
    "square_error": SquareErrorCost,
}

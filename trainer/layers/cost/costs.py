"""Cost layers with one value for each row, also in sequences; an optional third input contains weights of the rows.

The layers ignore `coeff`, which the network applies. As in v0.10, `coeff` does not change the cost. `coeff` multiplies
the whole gradient that the prediction layer has so far, including the gradients that other costs have added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle_base.kernels.rows import pick_columns, put_columns
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError, DataError
from trainer.arrays.arguments import Argument, Array, Flowing, Ids, PickedGradient, Sparse, find_bad_id
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.text import ROWS_ADVICE
from trainer.layers.base import Layer
from trainer.layers.checks import require_rows, require_same_rows


class CostLayer(Layer):
    """Inputs: prediction, label, and optionally the weight (rows, 1). A subclass defines the cost of a row."""

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
        """Return the gradient of the sum of all costs, (rows, n). Call `row_costs` for the same rows first."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the costs, (rows, 1).

        Raises: DataError: the weight has another number of rows; a cost may also raise it for its label.
        """
        prediction, label = inputs[0].value, inputs[1]
        if prediction is None:
            raise ConfigError(f"{self} needs a prediction of numbers, not of ids")
        weight = inputs[2].value if len(inputs) > 2 else None
        if len(inputs) > 2 and (weight is None or weight.shape[1] != 1):
            raise ConfigError(f"{self}: its weight input must be a dense layer of size 1")
        self._prediction, self._label, self._weight = prediction, label, weight
        costs = self.row_costs(prediction, label).reshape(-1, 1)
        if weight is not None:
            require_same_rows(self, [costs, weight])
        return inputs[0].with_value(costs if weight is None else costs * weight)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return the gradient of the prediction; label and weight have no gradient."""
        result = self.row_gradients(self._prediction, self._label)
        result *= self.weigh(gradient)
        return [result, *[None] * (len(wanted) - 1)]

    def weigh(self, gradient: Array) -> Array:
        """Return the gradient of each row's cost, multiplied by the row's weight, (rows, 1)."""
        return gradient if self._weight is None else gradient * self._weight

    def require_target(self, prediction: Array, label: Argument) -> Array:
        """Return the label as a matrix with the shape of the prediction.

        Raises: ConfigError: the label has ids, or a different width.
        """
        target = label.sparse.to_dense(prediction.dtype) if label.sparse is not None else label.value
        if target is None:
            raise ConfigError(f"{self} needs a label of numbers (dense_vector), not ids")
        if target.shape[1:] != prediction.shape[1:]:
            raise ConfigError(f"{self}: the label has {target.shape[1]} columns instead of {prediction.shape[1]}")
        require_same_rows(self, [prediction, target])
        return target

    def require_labels(self, label: Argument, rows: int, upper: int) -> Ids:
        """Return the label's ids, one for each row and each in [0, upper).

        Raises: ConfigError: the label has no ids. DataError: the number of ids differs from the number of rows, or an
            id is out of range.
        """
        if label.ids is None:
            raise ConfigError(f"{self} needs a label of ids (integer_value)")
        if len(label.ids) != rows:
            raise DataError(
                f"{self}: the label has {len(label.ids)} rows, but the prediction has {rows}; {ROWS_ADVICE}"
            )
        wrong = find_bad_id(label.ids, upper)
        if wrong is not None:
            raise DataError(f"{self}: label {wrong} is not in [0, {upper}), the prediction's size")
        return label.ids


class CrossEntropyCost(CostLayer):
    """The cost is -ln p[label], where p is a row of probabilities."""

    _labels: Ids
    _picked: Array

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return -ln p[label], which is infinite if p[label] is 0."""
        self._labels = self.require_labels(label, *prediction.shape)
        self._picked = pick_columns(prediction, self._labels)
        with np.errstate(divide="ignore"):  # numpy's warning is unnecessary, because an infinite cost is an error
            costs: Array = -np.log(self._picked)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return -1 / p[label] in the column of the label, and zero in all other columns."""
        return put_columns(-1 / self._picked, self._labels, prediction.shape[1])

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return `row_gradients` times the gradient of each row's cost, without the zero elements."""
        values = -1 / self._picked * self.weigh(gradient)[:, 0]
        picked = PickedGradient(self._labels, values, self._prediction.shape[1])
        return [picked, *[None] * (len(wanted) - 1)]


class SquareErrorCost(CostLayer):
    """The cost is the sum of (prediction - label)^2 over the columns, without a factor 1/2."""

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the squared distances."""
        difference = prediction - self.require_target(prediction, label)
        costs: Array = np.einsum("ij,ij->i", difference, difference)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return 2 * (prediction - label)."""
        result: Array = 2 * (prediction - self.require_target(prediction, label))
        return result


class SelfNormalizingCrossEntropyCost(CrossEntropyCost):
    """The cost is -ln(p[label] / Z) + alpha (ln Z)^2, where Z is the sum of a row p of unnormalised predictions."""

    _sums: Array  # Z: (rows, 1)

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        self._sums = prediction.sum(axis=1, keepdims=True)
        logarithms = np.log(self._sums[:, 0])
        alpha = prediction.dtype.type(self.config.softmax_selfnorm_alpha)
        costs: Array = super().row_costs(prediction, label) + logarithms + alpha * np.square(logarithms)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return the gradient of the cross entropy plus (1 + 2 alpha ln Z) / Z."""
        result = super().row_gradients(prediction, label)
        alpha = prediction.dtype.type(self.config.softmax_selfnorm_alpha)
        result += (1 + 2 * alpha * np.log(self._sums)) / self._sums
        return result

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Return the gradient of all columns of the prediction."""
        return CostLayer.backward(self, gradient, wanted)


class SoftBinaryCrossEntropyCost(CostLayer):
    """The cost is -(t ln p + (1 - t) ln(1 - p)), summed over the columns, for dense labels t in [0, 1]."""

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        target = self.require_target(prediction, label)
        costs: Array = -(target * np.log(prediction) + (1 - target) * np.log(1 - prediction)).sum(axis=1)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return (1 - t) / (1 - p) - t / p."""
        target = self.require_target(prediction, label)
        result: Array = (1 - target) / (1 - prediction) - target / prediction
        return result


class BinaryLabelsCrossEntropyCost(CostLayer):
    """The cost is the negative sum of ln p over the set columns and of ln(1 - p) over all other columns.

    A column is set if a sparse label contains the column, if the label is the id of the column, or if the column of a
    dense label is above 0.5.
    """

    _is_set: npt.NDArray[np.bool_]

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        self._is_set = self._find_set(prediction, label)
        costs: Array = -np.log(np.where(self._is_set, prediction, 1 - prediction)).sum(axis=1)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return -1 / p in the set columns, and 1 / (1 - p) in all other columns."""
        result: Array = 1 / np.where(self._is_set, -prediction, 1 - prediction)
        return result

    def _find_set(self, prediction: Array, label: Argument) -> npt.NDArray[np.bool_]:
        if label.ids is not None:
            is_set = np.zeros(prediction.shape, np.bool_)
            is_set[np.arange(len(prediction)), self.require_labels(label, *prediction.shape)] = True
            return is_set
        if label.sparse is not None:
            sparse = Sparse(label.sparse.width, label.sparse.offsets, label.sparse.ids)
            label = Argument(sparse=sparse)
        is_over: npt.NDArray[np.bool_] = self.require_target(prediction, label) > 0.5
        return is_over


class HuberRegressionCost(CostLayer):
    """A column costs d^2 / 2 if d <= delta, else delta (d - delta / 2), where d = |prediction - label|.

    The cost is the sum over the columns.
    """

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        delta = prediction.dtype.type(self.config.delta)
        distance = np.abs(prediction - self.require_target(prediction, label))
        costs: Array = np.where(distance <= delta, distance * distance / 2, delta * (distance - delta / 2)).sum(axis=1)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return prediction - label, limited to [-delta, delta]."""
        delta = prediction.dtype.type(self.config.delta)
        result: Array = np.clip(prediction - self.require_target(prediction, label), -delta, delta)
        return result


class SmoothL1Cost(CostLayer):
    """A column costs d^2 / 2 if d < 1, else d - 1 / 2, where d = |prediction - label|.

    The cost is the sum over the columns.
    """

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        distance = np.abs(prediction - self.require_target(prediction, label))
        costs: Array = np.where(distance < 1, distance * distance / 2, distance - 0.5).sum(axis=1)
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return prediction - label, limited to [-1, 1]."""
        result: Array = np.clip(prediction - self.require_target(prediction, label), -1, 1)
        return result


class HuberClassificationCost(CostLayer):
    """With y = 2 label - 1 and a = y * prediction, the cost is -4 a if a < -1, (1 - a)^2 if -1 <= a <= 1, else 0.

    Labels are 0 and 1.
    """

    _y: Array

    def row_costs(self, prediction: Array, label: Argument) -> Array:
        """Return the costs."""
        if prediction.shape[1] != 1:
            raise ConfigError(f"{self} needs a prediction of size 1, not {prediction.shape[1]}")
        self._y = (2 * self.require_labels(label, len(prediction), 2) - 1).astype(prediction.dtype)[:, None]
        a = self._y * prediction
        costs: Array = np.where(a < -1, -4 * a, np.square(np.maximum(1 - a, 0)))
        return costs

    def row_gradients(self, prediction: Array, label: Argument) -> Array:
        """Return -4 y if a < -1, -2 (1 - a) y if -1 <= a <= 1, else 0; the class defines a and y."""
        a = self._y * prediction
        result: Array = np.where(a < -1, -4, -2 * np.maximum(1 - a, 0)) * self._y
        return result


class SumCost(Layer):
    """The cost is the sum of each row. `coeff` has no effect, as in v0.10."""

    is_cost = True
    applies_coeff = True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._width = 0

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sums."""
        x = require_rows(self, inputs[0])
        self._width = x.shape[1]
        return inputs[0].with_value(x.sum(axis=1, keepdims=True))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return, for every column, the gradient of the row's sum."""
        return [np.repeat(gradient, self._width, axis=1)]

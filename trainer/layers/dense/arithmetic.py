"""Layers that compute with the elements of their inputs: sums, joins, scales, powers, norms of rows, limits.

x and y are inputs of shape (rows, size), unless another shape is given. In a layer without an input y, y is the result.
The result has the sequences of the first input.
Source: the files of these layers in gserver/layers of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.bias import Bias
from trainer.layers.checks import require_bias, require_matrix, require_rows, require_same_rows, require_weight


class AddLayer(Layer):
    """The sum of the inputs, plus a bias."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._bias = Bias(self)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sum."""
        values = [require_matrix(self, one, self.size) for one in inputs]
        require_same_rows(self, values)
        if len(values) == 1:
            return inputs[0].with_value(self._bias.add_to(values[0], is_fresh=False))
        total: Array = values[0] + values[1]
        for value in values[2:]:
            total += value
        return inputs[0].with_value(self._bias.add_to(total, is_fresh=True))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient for each input, in a separate array for each input."""
        self._bias.backward(gradient)
        first = list(wanted).index(True) if any(wanted) else -1
        return [
            (gradient if position == first else gradient.copy()) if want else None
            for position, want in enumerate(wanted)
        ]


class ConcatLayer(Layer):
    """Joins the columns of the inputs, side by side."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._ends: list[int] = []

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the joined rows."""
        values = [require_rows(self, one) for one in inputs]
        require_same_rows(self, values)
        self._ends = np.cumsum([value.shape[1] for value in values]).tolist()
        if self._ends[-1] != self.size:
            raise ConfigError(f"{self}: its inputs together have {self._ends[-1]} columns instead of {self.size}")
        return inputs[0].with_value(np.concatenate(values, axis=1))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the columns of the gradient that belong to each input."""
        columns = zip([0, *self._ends], self._ends, wanted, strict=False)
        return [np.ascontiguousarray(gradient[:, begin:end]) if want else None for begin, end, want in columns]


class SlopeInterceptLayer(Layer):
    """slope * x + intercept."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return slope * x + intercept."""
        x = require_matrix(self, inputs[0], self.size)
        return inputs[0].with_value(x * x.dtype.type(self.config.slope) + x.dtype.type(self.config.intercept))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return slope * gradient."""
        gradient *= gradient.dtype.type(self.config.slope)
        return [gradient]


class ScalingLayer(Layer):
    """The result is w x, where each row has one number w. Inputs: w (rows, 1), x."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._w: Array
        self._x: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return w x."""
        self._w, self._x = require_matrix(self, inputs[0], 1), require_matrix(self, inputs[1], self.size)
        require_same_rows(self, [self._w, self._x])
        return inputs[0].with_value(self._w * self._x)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the row sums of gradient * x, and w * gradient."""
        return [
            np.einsum("ij,ij->i", gradient, self._x)[:, None] if wanted[0] else None,
            gradient * self._w if wanted[1] else None,
        ]


class InterpolationLayer(Layer):
    """The result is w x + (1 - w) y, where each row has one number w. Inputs: w (rows, 1), x, y."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 3)
        self._w: Array
        self._difference: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return w x + (1 - w) y."""
        self._w = require_matrix(self, inputs[0], 1)
        x, y = (require_matrix(self, one, self.size) for one in inputs[1:])
        require_same_rows(self, [self._w, x, y])
        self._difference = x - y
        return inputs[0].with_value(self._w * x + (1 - self._w) * y)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the row sums of gradient * (x - y), then w * gradient, and then (1 - w) * gradient."""
        return [
            np.einsum("ij,ij->i", gradient, self._difference)[:, None] if wanted[0] else None,
            self._w * gradient if wanted[1] else None,
            (1 - self._w) * gradient if wanted[2] else None,
        ]


class PowerLayer(Layer):
    """The result is x to the power of w, where each row has one number w. Inputs: w (rows, 1), x."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(2, 2)
        self._w: Array
        self._x: Array
        self._y: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return x ** w."""
        self._w, self._x = require_matrix(self, inputs[0], 1), require_matrix(self, inputs[1], self.size)
        require_same_rows(self, [self._w, self._x])
        self._y = self._x**self._w
        return inputs[0].with_value(self._y)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the row sums of gradient * y * ln x, and gradient * w * x ** (w - 1)."""
        return [
            (gradient * self._y * np.log(self._x)).sum(axis=1, keepdims=True) if wanted[0] else None,
            gradient * self._w * self._x ** (self._w - 1) if wanted[1] else None,
        ]


class RowScalingLayer(Layer):
    """Divides each row of x by a number that is computed from the row."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._inverse: Array  # (rows, 1)
        self._y: Array

    def measure(self, x: Array) -> Array:
        """Return the divisor of each row. Shapes: x: (rows, size); the result: (rows,)."""
        raise NotImplementedError

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return each row divided by its divisor."""
        x = require_matrix(self, inputs[0], self.size)
        self._inverse = 1 / self.measure(x)[:, None]
        self._y = x * self._inverse
        return inputs[0].with_value(self._y)


class SumToOneLayer(RowScalingLayer):
    """Divides each row of x by the sum of the row."""

    def measure(self, x: Array) -> Array:
        """Return sum x."""
        total: Array = x.sum(axis=1)
        return total

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return (gradient - s) / sum x, where s is the row sum of gradient * y."""
        gradient -= np.einsum("ij,ij->i", gradient, self._y)[:, None]
        gradient *= self._inverse
        return [gradient]


class RowNormLayer(RowScalingLayer):
    """Divides each row of x by the Euclidean norm of the row."""

    def measure(self, x: Array) -> Array:
        """Return |x|."""
        lengths: Array = np.sqrt(np.einsum("ij,ij->i", x, x))
        return lengths

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return (g - y (g . y)) / |x|, where g is the gradient."""
        gradient -= self._y * np.einsum("ij,ij->i", gradient, self._y)[:, None]
        gradient *= self._inverse
        return [gradient]


class ClipLayer(Layer):
    """Limits x to the range from clip_conf.min to clip_conf.max; outside of the range the gradient is zero."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = config.inputs[0].clip_conf
        self._least, self._most = conf.min, conf.max
        if self._least >= self._most:
            raise ConfigError(f"{self}: min {self._least:g} is not less than max {self._most:g}")
        self._x: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return x within the limits."""
        self._x = require_matrix(self, inputs[0], self.size)
        return inputs[0].with_value(np.clip(self._x, self._x.dtype.type(self._least), self._x.dtype.type(self._most)))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient where x is within the limits, and zero elsewhere."""
        gradient *= (self._x >= self._least) & (self._x <= self._most)
        return [gradient]


class ScaleShiftLayer(Layer):
    """The result is w x + b for two numbers w and b (b may be missing)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._weight, self._shift = require_weight(self, 0, 1), require_bias(self, 1)
        self._x: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return w x + b."""
        self._x = require_matrix(self, inputs[0], self.size)
        y: Array = self._x * self._weight.value
        if self._shift is not None:
            y += self._shift.value
        return inputs[0].with_value(y)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return w * gradient. Add to the gradients of w and b the sums of gradient * x and of `gradient`."""
        if not self._weight.is_static:
            self._weight.add_gradient(np.einsum("ij,ij->", gradient, self._x).reshape(1))
        if self._shift is not None and not self._shift.is_static:
            self._shift.add_gradient(gradient.sum().reshape(1))
        return [gradient * self._weight.value if wanted[0] else None]


class ParametricReluLayer(Layer):
    """The result is x where x is positive, else w x, with one w for every `partial_sum` columns."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._share: int = config.partial_sum or 1
        if self.size % self._share:
            raise ConfigError(f"{self}: partial_sum {self._share} does not divide the layer's size {self.size}")
        self._weight = require_weight(self, 0, self.size // self._share)
        self._x: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return x or w x."""
        self._x = require_matrix(self, inputs[0], self.size)
        return inputs[0].with_value(np.where(self._x > 0, self._x, self._x * self._slopes()))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient where x is positive, else w times the gradient.

        Add to the gradient of w the sums of gradient * x where x is not positive.
        """
        if not self._weight.is_static:
            sums = np.einsum("ij,ij->j", gradient, np.minimum(self._x, 0))
            self._weight.add_gradient(sums.reshape(-1, self._share).sum(axis=1))
        return [np.where(self._x > 0, gradient, gradient * self._slopes()) if wanted[0] else None]

    def _slopes(self) -> Array:
        return np.repeat(self._weight.value, self._share)

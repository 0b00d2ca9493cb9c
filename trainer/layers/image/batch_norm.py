"""Batch normalisation: give each channel mean 0 and variance 1 over batch and pixels, then apply scale and bias.

In training, mean and variance are computed from the batch, and two static parameters keep their moving averages. Tests
normalise with the moving averages. Training and tests use the biased variance.

Source: spec/config.md 6; gserver/layers/BatchNormalizationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from paddle_base.kernels.images import normalise, normalise_gradient
from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_bias, require_matrix, require_weight
from trainer.layers.workspace import Buffer

# bytes of the channels that are processed together; all steps after the first then find these channels in the cache
CHUNK_BYTES = 1 << 20


class BatchNormLayer(Layer):
    """Normalises the channels of x. Each of the three inputs names the layer of x, and each has a parameter.

    Shapes: x, result: (n, channels * pixels); the parameters scale, moving mean, moving variance, bias: (channels,).
    """

    owns_result = True

    @classmethod
    def has_effects(cls, config: LayerConfig) -> bool:
        """Return True: in training the layer moves its averages, which are parameters."""
        return True

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 3)
        self._channels = config.inputs[0].image_conf.channels
        self._scale, self._moving_mean, self._moving_variance = (
            require_weight(self, position, self._channels) for position in range(3)
        )
        require_bias(self, self._channels)
        self._input: Argument
        self._mean: Array
        self._inverse_deviation: Array
        self._out, self._gradient, self._scratch = Buffer(), Buffer(), Buffer()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the normalised rows."""
        self._input = inputs[0]
        x = self._split(require_matrix(self, inputs[0], self.size or self._channels))
        out = self._out.take(x.shape, x.dtype)
        takes_batch = self.is_training or (
            self.config.HasField("use_global_stats") and not self.config.use_global_stats
        )
        if takes_batch and len(x):
            mean, variance = self._normalise_by_batch(x, out)
            if self.is_training:
                self._move(mean, variance)
        else:
            self._normalise_by_moving(x, out)
        return inputs[0].with_value(out.reshape(len(x), x.shape[1] * x.shape[2]))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add to the gradients of scale and bias, and return the gradient of the rows.

        The gradient of the rows includes the dependence of mean and variance on the rows.
        """
        assert self._input.value is not None  # `forward` rejects an input without values
        x, g = self._split(self._input.value), self._split(gradient)
        out = self._gradient.take(x.shape, x.dtype)
        totals, products = np.zeros((2, self._channels), x.dtype)
        statistics = self._mean, self._inverse_deviation, self._scale.value
        if not normalise_gradient(out, (totals, products), g, x, *statistics):
            self._find_gradients(g, x, out, totals, products)
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(totals)
        if not self._scale.is_static:
            self._scale.add_gradient(products)
        return [out.reshape(gradient.shape) if wanted[0] else None, None, None]

    def _find_gradients(self, g: Array, x: Array, out: Array, totals: Array, products: Array) -> None:
        """Write the gradients of x, bias and scale, from g, the gradient of the result."""
        count = x.dtype.type(max(1, x.shape[0] * x.shape[2]))
        factor = self._scale.value * self._inverse_deviation
        for part in self._chunks(x):
            total, inverse = sum_by_channel(g[:, part]), self._inverse_deviation[part]
            centred = self._centre(x, part)
            product = multiply_by_channel(g[:, part], centred) * inverse
            totals[part], products[part] = total, product
            flow = np.multiply(g[:, part], factor[part, None], out=out[:, part])
            centred *= (-factor[part] * inverse * product / count)[:, None]
            flow += centred
            flow -= (factor[part] * total / count)[:, None]

    def _normalise_by_batch(self, x: Array, out: Array) -> tuple[Array, Array]:
        """Write the normalised values to `out`, and return mean and variance."""
        mean, variance, inverse = np.empty((3, self._channels), x.dtype)
        self._mean, self._inverse_deviation = mean, inverse
        shift = None if self.bias is None else self.bias.value
        if normalise(out, (mean, variance, inverse), x, self._scale.value, shift, self.config.epsilon):
            return mean, variance
        count = x.dtype.type(x.shape[0] * x.shape[2])
        for part in self._chunks(x):
            mean[part] = sum_by_channel(x[:, part]) / count
            centred = np.subtract(x[:, part], mean[part, None], out=out[:, part])
            variance[part] = multiply_by_channel(centred, centred) / count
            inverse[part] = self._invert(variance[part])
            self._scale_and_shift(centred, part)
        return mean, variance

    def _normalise_by_moving(self, x: Array, out: Array) -> None:
        self._mean, self._inverse_deviation = self._moving_mean.value, self._invert(self._moving_variance.value)
        for part in self._chunks(x):
            self._scale_and_shift(np.subtract(x[:, part], self._mean[part, None], out=out[:, part]), part)

    def _scale_and_shift(self, centred: Array, part: slice) -> None:
        centred *= (self._scale.value[part] * self._inverse_deviation[part])[:, None]
        if self.bias is not None:
            centred += self.bias.value[part, None]

    def _invert(self, variance: Array) -> Array:
        inverse: Array = 1 / np.sqrt(np.maximum(variance, 0) + variance.dtype.type(self.config.epsilon))
        return inverse

    def _centre(self, x: Array, part: slice) -> Array:
        """Return x minus the mean of some channels, in an array that later calls reuse."""
        source = x[:, part]
        return np.subtract(source, self._mean[part, None], out=self._scratch.take(source.shape, x.dtype))

    def _move(self, mean: Array, variance: Array) -> None:
        """Update the moving averages."""
        self._moving_mean.follow(mean, self.config.moving_average_fraction)
        self._moving_variance.follow(variance, self.config.moving_average_fraction)

    def _split(self, rows: Array) -> Array:
        """Return the rows as (n, channels, pixels)."""
        return rows.reshape(len(rows), self._channels, rows.shape[1] // self._channels)

    def _chunks(self, x: Array) -> Iterator[slice]:
        """Yield slices of the channels of an array with the shape (n, channels, pixels)."""
        step = max(1, CHUNK_BYTES // max(1, x[:, :1].nbytes))
        for start in range(0, self._channels, step):
            yield slice(start, start + step)


def sum_by_channel(x: Array) -> Array:
    """Return the sum of each channel. Shapes: x: (n, channels, pixels)."""
    total: Array = x.sum(axis=2).sum(axis=0)
    return total


def multiply_by_channel(x: Array, y: Array) -> Array:
    """Return the sum of x * y of each channel. Shapes: x, y: (n, channels, pixels)."""
    total: Array = np.einsum("ncp,ncp->nc", x, y).sum(axis=0)
    return total

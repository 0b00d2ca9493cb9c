"""Batch normalisation: every channel to mean 0 and variance 1 over the batch and its pixels, then scaled and moved.

In training the statistics are those of the batch, and moving averages of them go to two static parameters, which
normalise in tests. The variance is the biased one, in both. Source: spec/config.md 6; gserver/layers/
BatchNormalizationLayer.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proto.ModelConfig_pb2 import LayerConfig
from trainer.arguments import Argument, Array
from trainer.layers.base import Layer
from trainer.layers.buffers import Buffer
from trainer.layers.checks import require_bias, require_matrix, require_weight
from trainer.parameters import ParameterTable

CHUNK_BYTES = 1 << 19  # rows worked on at a time, so that all steps but the first find them in the cache


class BatchNormLayer(Layer):
    """x: (n, channels * pixels) -> same shape. Three inputs, all one layer: they carry the parameters.

    Parameters: scale, moving mean, moving variance, bias: (channels,).
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(3, 3)
        self._channels = config.inputs[0].image_conf.channels
        self._scale, self._moving_mean, self._moving_variance = (
            require_weight(self, position, self._channels) for position in range(3)
        )
        require_bias(self, self._channels)
        self._statistics = Statistics()
        self._input: Argument
        self._mean: Array
        self._inverse_deviation: Array
        self._out, self._gradient = Buffer(), Buffer()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the normalised rows."""
        width = self.size or self._channels
        x = require_matrix(self, inputs[0], width)
        self._input = inputs[0]
        mean, variance = self._find_statistics(x)
        self._mean = mean
        self._inverse_deviation = 1 / np.sqrt(np.maximum(variance, 0) + x.dtype.type(self.config.epsilon))
        factor = self._scale.value * self._inverse_deviation
        out = self._out.take(x.shape, x.dtype)
        offset = np.zeros_like(mean) if self.bias is None else self.bias.value
        self._statistics.normalise(self._split(x), mean, factor, offset, self._split(out))
        return inputs[0].with_value(out)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add to the gradients of scale and bias, return that of the rows: the statistics depend on them too."""
        x = self._input.value
        assert x is not None  # forward has refused it
        total, product = self._statistics.gradient_sums(self._split(gradient), self._split(x), self._mean)
        product *= self._inverse_deviation
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(total)
        if not self._scale.is_static:
            self._scale.add_gradient(product)
        if not any(wanted) or not len(x):
            return [np.zeros_like(x) if wanted[0] else None, None, None]
        count = x.dtype.type(x.size // self._channels)
        factor = self._scale.value * self._inverse_deviation
        slope = -factor * self._inverse_deviation * product / count
        offset = -factor * total / count
        out = self._gradient.take(x.shape, x.dtype)
        self._statistics.combine(
            (self._split(gradient), factor), (self._split(x), self._mean, slope), offset, self._split(out)
        )
        return [out, None, None]

    def _find_statistics(self, x: Array) -> tuple[Array, Array]:
        uses_moving = not self.config.HasField("use_global_stats") or self.config.use_global_stats
        if not len(x) or (not self.is_training and uses_moving):
            return self._moving_mean.value, self._moving_variance.value
        mean, variance = self._statistics.moments(self._split(x))
        if self.is_training:
            kept = x.dtype.type(self.config.moving_average_fraction)
            for moving, of_batch in ((self._moving_mean, mean), (self._moving_variance, variance)):
                moving.value *= kept
                moving.value += (1 - kept) * of_batch
        return mean, variance

    def _split(self, rows: Array) -> Array:
        """Return the rows as (n, channels, pixels)."""
        return rows.reshape(len(rows), self._channels, rows.shape[1] // self._channels)


class Statistics:
    """Sums and combinations of (n, channels, pixels) by channel, chunk by chunk; what is by channel is (channels,)."""

    def __init__(self) -> None:
        self._scratch = Buffer()

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Return mean and biased variance of each channel."""
        count = x.dtype.type(x.shape[0] * x.shape[2])
        mean = sum_by_channel(x) / count
        squares = np.zeros_like(mean)
        for chunk in _chunks(x):
            centred = self._centre(x[chunk], mean)
            squares += multiply_by_channel(centred, centred)
        return mean, squares / count

    def normalise(self, x: Array, mean: Array, factor: Array, offset: Array, out: Array) -> None:
        """Write (x - mean) * factor + offset to `out`."""
        for chunk in _chunks(x):
            part = np.subtract(x[chunk], mean[:, None], out=out[chunk])
            part *= factor[:, None]
            part += offset[:, None]

    def gradient_sums(self, g: Array, x: Array, mean: Array) -> tuple[Array, Array]:
        """Return the sums of g and of g * (x - mean) of each channel."""
        product = np.zeros_like(mean)
        for chunk in _chunks(x):
            product += multiply_by_channel(g[chunk], self._centre(x[chunk], mean))
        return sum_by_channel(g), product

    def combine(self, g: tuple[Array, Array], x: tuple[Array, Array, Array], offset: Array, out: Array) -> None:
        """Write g * factor + (x - mean) * slope + offset to `out`. Args: g: (g, factor). x: (x, mean, slope)."""
        for chunk in _chunks(out):
            part = np.multiply(g[0][chunk], g[1][:, None], out=out[chunk])
            centred = self._centre(x[0][chunk], x[1])
            centred *= x[2][:, None]
            part += centred
            part += offset[:, None]

    def _centre(self, x: Array, mean: Array) -> Array:
        return np.subtract(x, mean[:, None], out=self._scratch.take(x.shape, x.dtype))


def sum_by_channel(x: Array) -> Array:
    """Return the sum of each channel. Shapes: x: (n, channels, pixels)."""
    total: Array = x.sum(axis=2).sum(axis=0)
    return total


def multiply_by_channel(x: Array, y: Array) -> Array:
    """Return the sum of x * y of each channel. Shapes: x, y: (n, channels, pixels)."""
    total: Array = np.einsum("ncp,ncp->nc", x, y).sum(axis=0)
    return total


def _chunks(x: Array) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // max(1, x[:1].nbytes))
    for start in range(0, len(x), step):
        yield slice(start, start + step)


LAYERS: dict[str, type[Layer]] = {
    "batch_norm": BatchNormLayer,
    "cudnn_batch_norm": BatchNormLayer,
    "mkldnn_batch_norm": BatchNormLayer,
}

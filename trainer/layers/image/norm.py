"""Normalisation of images across their channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_matrix, require_weight

CROSS_CHANNEL_EPSILON = 1e-6


class NormLayer(Layer):
    """Normalises x across channels. Shapes: x, result: (n, channels * pixels).

    cmrnorm-projection computes x / d^pow, with d = 1 + scale * s. Here s is the sum of the squares of the `size`
    channels around the channel of x. cross-channel-norm scales the channels of each pixel to norm 1, and then
    multiplies each channel by its weight.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        conf = self._conf = config.inputs[0].norm_conf
        kinds = {"cmrnorm-projection": self._across_maps, "cross-channel-norm": self._to_length_one}
        backwards = {"cmrnorm-projection": self._across_maps_back, "cross-channel-norm": self._to_length_one_back}
        if conf.norm_type not in kinds:
            raise ConfigError(f"{self}: norm_type '{conf.norm_type}' is not known; known are {', '.join(kinds)}")
        self._run, self._run_back = kinds[conf.norm_type], backwards[conf.norm_type]
        self._weight: Parameter | None = None
        if conf.norm_type == "cross-channel-norm":
            self._weight = require_weight(self, 0, conf.channels)
        self._x: Array
        self._denominator: Array

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the normalised rows."""
        width = self.size or self.input_configs[0].size
        x = require_matrix(self, inputs[0], width)
        self._x = x.reshape(len(x), self._conf.channels, width // self._conf.channels)
        return inputs[0].with_value(self._run(self._x).reshape(x.shape))

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient of the rows."""
        result = self._run_back(gradient.reshape(self._x.shape))
        return [result.reshape(gradient.shape) if wanted[0] else None]

    def _across_maps(self, x: Array) -> Array:
        before = (self._conf.size - 1) // 2
        sums = _sum_channels(np.square(x), before, self._conf.size - 1 - before)
        self._denominator = 1 + x.dtype.type(self._conf.scale) * sums
        y: Array = x * self._denominator ** x.dtype.type(-self._conf.pow)
        return y

    def _across_maps_back(self, g: Array) -> Array:
        power, scale = self._x.dtype.type(self._conf.pow), self._x.dtype.type(self._conf.scale)
        before = (self._conf.size - 1) // 2
        direct = g * self._denominator**-power
        # a value of x occurs in the denominators of all channels whose windows include this value
        shared = _sum_channels(direct * self._x / self._denominator, self._conf.size - 1 - before, before)
        result: Array = direct - 2 * power * scale * self._x * shared
        return result

    def _to_length_one(self, x: Array) -> Array:
        assert self._weight is not None
        self._denominator = np.sqrt(np.square(x).sum(axis=1, keepdims=True) + x.dtype.type(CROSS_CHANNEL_EPSILON))
        y: Array = x / self._denominator * self._weight.value[:, None]
        return y

    def _to_length_one_back(self, g: Array) -> Array:
        assert self._weight is not None
        unit = self._x / self._denominator
        if not self._weight.is_static:
            self._weight.add_gradient(np.einsum("ncp,ncp->c", g, unit))
        weighted = g * self._weight.value[:, None]
        result: Array = (weighted - unit * (weighted * unit).sum(axis=1, keepdims=True)) / self._denominator
        return result


def _sum_channels(x: Array, before: int, after: int) -> Array:
    """Return, for each channel, the sum of the channel, the `before` previous channels and the `after` next ones."""
    total = x.copy()
    channels = x.shape[1]
    for distance in range(1, min(before, channels - 1) + 1):
        total[:, distance:] += x[:, :-distance]
    for distance in range(1, min(after, channels - 1) + 1):
        total[:, :-distance] += x[:, distance:]
    return total

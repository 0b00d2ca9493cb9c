"""Layers that slide filters over images: convolution and transposed convolution, over planes and over volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer
from trainer.layers.checks import require_bias, require_matrix, require_weight
from trainer.layers.image.convolution import Convolution, conv_windows, make_convolution
from trainer.layers.workspace import Buffer


class ConvolutionLayer(Layer):
    """The sum of the convolutions of one or several inputs, plus a bias.

    An input has the shape (n, channels, *image), and the result has the shape (n, filters, *grid). The bias has one
    value per filter (shared_biases) or one per value of the output. caffe_mode (whether sizes are rounded down) is not
    needed here, because the message holds the sizes of the output.
    """

    owns_result = True
    dimensions: ClassVar[int] = 2
    is_transposed: ClassVar[bool] = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._products = [self._make_product(position) for position in range(len(config.inputs))]
        self.size = self._output_size(self._products[0])
        self._filter_weights = [
            require_weight(self, position, product.weights) for position, product in enumerate(self._products)
        ]
        require_bias(self, config.num_filters if config.shared_biases else self.size)
        self._images: list[Array] = []
        self._out, self._more = Buffer(), Buffer()
        self._gradients = [Buffer() for _ in config.inputs]

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the sums over the windows."""
        self._images = [
            require_matrix(self, one, self._input_size(product))
            for one, product in zip(inputs, self._products, strict=True)
        ]
        total: Array | None = None
        # the convolution itself adds the bias of each filter, because the map of the filter is then still in the cache
        bias = self.bias if self.config.shared_biases and not self.is_transposed else None
        for x, product, weight in zip(self._images, self._products, self._filter_weights, strict=True):
            out = (self._out if total is None else self._more).take((len(x), self.size), weight.value.dtype)
            if self.is_transposed:
                product.to_images(x, weight.value, out)
            else:
                product.to_maps(x, weight.value, out, bias.value if bias is not None and total is None else None)
            total = out if total is None else np.add(total, out, out=total)
        assert total is not None  # __init__ refuses a layer without inputs
        if self.bias is not None and bias is None:
            biased = total.reshape(len(total), self.bias.size, self.size // self.bias.size)
            biased += self.bias.value[:, None]
        return inputs[0].with_value(total)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add to the gradients of the filters and the bias, and return the gradients of the images."""
        if self.bias is not None and not self.bias.is_static:
            split = gradient.reshape(len(gradient), self.bias.size, self.size // self.bias.size)
            self.bias.add_gradient(split.sum(axis=2).sum(axis=0))
        results: list[Array | None] = []
        rows = zip(self._images, self._products, self._filter_weights, self._gradients, wanted, strict=True)
        for x, product, weight, buffer, is_wanted in rows:
            if not weight.is_static:
                ends = (gradient, x) if self.is_transposed else (x, gradient)
                weight.add_gradient(product.gradient(*ends))
            results.append(self._apply_back(product, gradient, weight.value, buffer) if is_wanted else None)
        return results

    def _make_product(self, position: int) -> Convolution:
        conf = self.config.inputs[position].conv_conf
        filters, channels, groups = self.config.num_filters, conf.channels, conf.groups
        if not groups or channels % groups or filters % groups or not filters:
            raise ConfigError(f"{self}: {channels} channels or {filters} filters are no multiple of {groups} groups")
        ends = (filters, channels) if self.is_transposed else (channels, filters)
        product = make_convolution(conv_windows(conf, self.dimensions), *ends, groups)
        if self.config.size and self.config.size != self._output_size(product):
            raise ConfigError(
                f"{self} has size {self.config.size}, but input {position} gives {self._output_size(product)} values"
            )
        return product

    def _output_size(self, product: Convolution) -> int:
        return product.image_size if self.is_transposed else product.map_size

    def _input_size(self, product: Convolution) -> int:
        return product.map_size if self.is_transposed else product.image_size

    def _apply_back(self, product: Convolution, gradient: Array, w: Array, buffer: Buffer) -> Array:
        out = buffer.take((len(gradient), self._input_size(product)), w.dtype)
        return product.to_maps(gradient, w, out) if self.is_transposed else product.to_images(gradient, w, out)


class TransposedConvolutionLayer(ConvolutionLayer):
    """The transpose of a convolution from images with `num_filters` channels to the shape of the input."""

    is_transposed = True


class Convolution3DLayer(ConvolutionLayer):
    """Convolution over volumes, (channels, depth, height, width)."""

    dimensions = 3


class TransposedConvolution3DLayer(TransposedConvolutionLayer):
    """Transposed convolution over volumes."""

    dimensions = 3

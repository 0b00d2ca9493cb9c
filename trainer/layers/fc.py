"""The fully connected layer: y = sum over the inputs of x_k W_k, plus a bias.

Inputs are dense rows or sparse ones (0/1 or with values). A sparse input costs work in proportion to its nonzeros,
forward and backward: rows of W are gathered and summed up, rows of its gradient scattered; an id that occurs
repeatedly in a row counts repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.rows import sum_rows
from proto.ModelConfig_pb2 import LayerConfig
from pserver.errors import ConfigError
from trainer.arguments import Argument, Array
from trainer.layers.base import Layer
from trainer.parameters import Parameter, ParameterTable


class FullyConnectedLayer(Layer):
    """x: (rows, I_k) dense or sparse, W_k: (I_k, size), bias: (size,) -> (rows, size)."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._shapes: list[tuple[Parameter, tuple[int, int]]] = []
        for position, weight in enumerate(self.weights):
            if weight is None:
                raise ConfigError(f"{self}: its input {position} has no parameter")
            if self.size == 0 or weight.size % self.size:
                raise ConfigError(
                    f"{self}: parameter {weight.name} has {weight.size} values, no multiple of the "
                    f"layer's size {self.size}"
                )
            self._shapes.append((weight, (weight.size // self.size, self.size)))
        self._inputs: Sequence[Argument] = ()

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the weighted sums."""
        self._inputs = inputs
        total: Array | None = None
        for one, (weight, shape) in zip(inputs, self._shapes, strict=True):
            part = self._multiply(one, weight.matrix(*shape))
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None  # __init__ refuses a layer without inputs
        if self.bias is not None:
            total += self.bias.value
        return inputs[0].with_value(total)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Add x^T g to the weights' gradients, return g W^T for dense inputs."""
        if self.bias is not None and not self.bias.is_static:
            self.bias.add_gradient(gradient.sum(axis=0))
        results: list[Array | None] = []
        for one, (weight, shape), is_wanted in zip(self._inputs, self._shapes, wanted, strict=True):
            if not weight.is_static:
                _add_weight_gradient(one, gradient, weight)
            results.append(gradient @ weight.matrix(*shape).T if is_wanted and one.sparse is None else None)
        return results

    def _multiply(self, one: Argument, w: Array) -> Array:
        width = one.value.shape[1] if one.value is not None else one.sparse.width if one.sparse is not None else None
        if width is None:
            raise ConfigError(f"{self} has an input of ids; declare the slot as sparse_binary_vector or dense_vector")
        if width != len(w):
            raise ConfigError(f"{self}: an input has width {width}, its weight {len(w)} rows")
        if one.value is not None:
            product: Array = one.value @ w
            return product
        assert one.sparse is not None  # then width would be None
        return sum_rows(w, one.sparse.ids, one.sparse.offsets, one.sparse.values)


def _add_weight_gradient(one: Argument, gradient: Array, weight: Parameter) -> None:
    if one.sparse is not None:
        weight.add_outer(gradient, one.sparse.ids, one.sparse.offsets, one.sparse.values)
    elif one.value is not None:
        weight.add_product(one.value, gradient)


LAYERS: dict[str, type[Layer]] = {"fc": FullyConnectedLayer}

"""Operators: functions of several inputs of a mixed layer; the layer adds their results to its sum.

Source: spec/config.md 7; gserver/layers/*Operator.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import OperatorConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array


class Operator:
    """An operator of a layer: it computes (rows, output_size) from dense inputs, whose sizes are in the message.

    Args: config: the message of the operator. where: the name of the layer, for error messages.
    """

    def __init__(self, config: OperatorConfig, where: str) -> None:
        self.config = config
        self.where = where
        self.output_size: int = config.output_size

    def __str__(self) -> str:
        return f"{self.where}: {self.config.type} operator"

    def forward(self, inputs: Sequence[Argument]) -> Array:
        """Return the result in a new array."""
        raise NotImplementedError

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return new arrays with the wanted gradients of the inputs; the method must not change `gradient`."""
        raise NotImplementedError

    def require_values(self, inputs: Sequence[Argument]) -> list[Array]:
        """Return the dense rows of the inputs.

        Raises: ConfigError: an input has no dense rows, or rows of a different width.
        """
        values = []
        for one, width in zip(inputs, self.config.input_sizes, strict=True):
            if one.value is None or one.value.shape[1] != width:
                raise ConfigError(f"{self} needs inputs of dense rows with the widths {list(self.config.input_sizes)}")
            values.append(one.value)
        return values


class DotMulOperator(Operator):
    """Returns scale * a * b, element by element."""

    def __init__(self, config: OperatorConfig, where: str) -> None:
        super().__init__(config, where)
        if len(config.input_sizes) != 2 or set(config.input_sizes) != {config.output_size}:
            raise ConfigError(f"{self} takes two inputs as wide as its result")
        self._a: Array
        self._b: Array

    def forward(self, inputs: Sequence[Argument]) -> Array:
        """Return scale * a * b."""
        self._a, self._b = self.require_values(inputs)
        return self._scaled(self._a) * self._b

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return scale * gradient * b and scale * gradient * a."""
        gradient = self._scaled(gradient)
        return [gradient * other if want else None for other, want in zip((self._b, self._a), wanted, strict=True)]

    def _scaled(self, one: Array) -> Array:
        scale = self.config.dotmul_scale
        return one if scale == 1 else one * one.dtype.type(scale)


OPERATORS: dict[str, type[Operator]] = {"dot_mul": DotMulOperator}

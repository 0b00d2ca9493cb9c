"""The base class of layers.

A layer is made from a LayerConfig; it computes its output and the gradients of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.arrays.rng import Stream


class Layer:
    """One layer of the network.

    A subclass overrides `forward`; a subclass with gradients also overrides `backward`. The network handles activation,
    dropout and error clipping. Between `forward` and `backward` a layer may store data of the forward pass.

    Attributes: is_training: whether the pass is part of training; it is False in tests.
        stream: the random stream in training; None in tests and in gradient checks.
    """

    is_cost: ClassVar[bool] = False
    is_likelihood: ClassVar[bool] = False  # a cost, whose coefficient and statistics v0.10 treats as another layer's
    takes_gradient: ClassVar[bool] = True  # whether the network calls `backward`; data and ids have no gradient
    takes_repeats: ClassVar[bool] = False  # whether the layer computes faster on an input with repeated rows
    applies_coeff: ClassVar[bool] = False  # whether the layer is a cost that itself multiplies its gradients by `coeff`
    applies_activation: ClassVar[bool] = False  # whether the layer itself applies `active_type` to its output
    owns_result: ClassVar[bool] = False  # whether the activation may overwrite the result of `forward`

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        self.config = config
        self.name: str = config.name
        self.size: int = config.size
        self.weights: list[Parameter | None] = [
            parameters[one.input_parameter_name] if one.input_parameter_name else None for one in config.inputs
        ]
        self.bias = parameters[config.bias_parameter_name] if config.bias_parameter_name else None
        self.input_configs: list[LayerConfig] = []  # the network sets the configs of the input layers once
        self.may_repeat = False  # whether all readers of the output have `takes_repeats`; set once by the network
        self.is_training = False  # the network sets `is_training` and `stream` before `forward`
        self.stream: Stream | None = None
        # the gradients of the extra outputs; the network sets them before `backward`
        self.extra_gradients: dict[str, Array] = {}

    def __str__(self) -> str:
        return f"layer {self.name} ({self.config.type})"

    @classmethod
    def has_effects(cls, config: LayerConfig) -> bool:
        """Return whether training changes by this layer although no other layer reads it.

        Such a layer is a cost, draws random numbers, or changes parameters in its forward pass.
        """
        return cls.is_cost or cls.is_likelihood or config.drop_rate > 0

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the output for a batch, before the activation."""
        raise NotImplementedError

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add to the gradients of the parameters, and return the gradients of the inputs that are wanted.

        Args: gradient: the gradient of the output of the last forward pass, before the activation.
            wanted: for each input, whether its gradient is needed.
        Returns: the gradient of each input, as a new array or as the array `gradient`; None for an input without
            gradient. For an input with repeated rows, the result may be the gradient of the distinct rows.
        """
        raise NotImplementedError

    def carried(self) -> Any:
        """Return the JSON-compatible state (without parameters) that the layer keeps between batches, or None."""
        return None

    def carry_on(self, state: Any) -> None:
        """Restore a state (not None) that `carried` of an earlier instance returned."""

    def require_inputs(self, least: int, most: int) -> None:
        """Check that the layer has `least` to `most` inputs.

        Raises: ConfigError: the layer has fewer or more inputs; the text names the layer.
        """
        if not least <= len(self.config.inputs) <= most:
            raise ConfigError(f"{self} has {len(self.config.inputs)} inputs; it takes {least} to {most}")

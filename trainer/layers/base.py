"""What a layer is: built from its LayerConfig, it computes its output and the gradients of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from proto.ModelConfig_pb2 import LayerConfig
from runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array, Flowing
from trainer.arrays.parameters import Parameter, ParameterTable
from trainer.arrays.rng import Stream


class Layer:
    """One layer of the network.

    A subclass overrides `forward` and, unless nothing flows back through it, `backward`; what the network does around
    them (activation, dropout, error clipping) is not its business. Between the two calls a layer may keep what it
    needs of the forward pass.

    Attributes: is_training: False in tests.  stream: draws random numbers in training; None otherwise, and where
        gradients are checked.
    """

    is_cost: ClassVar[bool] = False
    takes_gradient: ClassVar[bool] = True  # False: its output is data or ids, backward is never called
    takes_repeats: ClassVar[bool] = False  # True: it computes faster on an input whose rows repeat
    applies_coeff: ClassVar[bool] = False  # True: a cost whose gradients are scaled by `coeff` already
    applies_activation: ClassVar[bool] = False  # True: its output has gone through `active_type` already

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        self.config = config
        self.name: str = config.name
        self.size: int = config.size
        self.weights: list[Parameter | None] = [
            parameters[one.input_parameter_name] if one.input_parameter_name else None for one in config.inputs
        ]
        self.bias = parameters[config.bias_parameter_name] if config.bias_parameter_name else None
        self.input_configs: list[LayerConfig] = []  # configs of the inputs' layers; the network sets it once
        self.may_repeat = False  # whether all that read its output take repeats; the network sets it once
        self.is_training = False  # the network sets these two before `forward`
        self.stream: Stream | None = None
        self.extra_gradients: dict[str, Array] = {}  # and this before `backward`: gradients of the output's extras

    def __str__(self) -> str:
        return f"layer {self.name} ({self.config.type})"

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the output of a batch, before the activation."""
        raise NotImplementedError

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> Sequence[Flowing]:
        """Add to the gradients of the parameters and return those of the inputs, for which they are wanted.

        Args: gradient: of the output of the last forward pass, before the activation.
            wanted: for each input, whether a gradient is of use.
        Returns: for each input its gradient, a fresh array or the given one; None where it has none. For an input
            whose rows repeat it may be that of the distinct rows.
        """
        raise NotImplementedError

    def carried(self) -> Any:
        """Return what it takes from batch to batch, but for parameters, as JSON can hold it; None: nothing."""
        return None

    def carry_on(self, state: Any) -> None:
        """Go on from what another one took from batch to batch, which is not None."""

    def require_inputs(self, least: int, most: int) -> None:
        """Return if the layer has `least` to `most` inputs.

        Raises: ConfigError: naming the layer.
        """
        if not least <= len(self.config.inputs) <= most:
            raise ConfigError(f"{self} has {len(self.config.inputs)} inputs; it takes {least} to {most}")

"""Agents: layers that compute nothing, and that represent the inputs and results of a recurrent group.

Source: spec/config.md 12; gserver/gradientmachines/RecurrentGradientMachine.cpp of v0.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import BugError, ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer


class GroupOutput(Argument):
    """The output of a group's layer: `links` has the results of the group by the names of their gather agents.

    The output itself has no rows.
    """

    def __init__(self, links: Mapping[str, Argument], value: Array) -> None:
        super().__init__(value=value)
        self.links = links


class AgentLayer(Layer):
    """A layer whose rows the group supplies: an input of the step, or an output of the previous step."""

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Raise BugError: the group always supplies the rows, so a call of this method is a bug."""
        raise BugError(f"agent {self.name} has to compute its rows, but the group did not supply them")


class GatherAgentLayer(Layer):
    """A result of a group, with its rows in the order of the input of the group."""

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if len(config.inputs) != 1 or not config.inputs[0].input_layer_argument:
            raise ConfigError(f"{self} is not the result of a recurrent group; the message lacks the group's sub-model")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the result.

        Raises: ConfigError: the group generates, and this is not its ids.
        """
        assert isinstance(inputs[0], GroupOutput)
        found = inputs[0].links.get(self.config.inputs[0].input_layer_argument)
        if found is None:
            raise ConfigError(
                f"{self} is a further result of a step that generates, which gives only its ids: let no output and no "
                "layer read it; an evaluator in the step may read the layer there"
            )
        return found

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient."""
        return [gradient]

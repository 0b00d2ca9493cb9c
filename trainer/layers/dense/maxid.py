"""The id of each row's largest value."""

from __future__ import annotations

from collections.abc import Sequence

from proto.ModelConfig_pb2 import LayerConfig
from runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer


class MaxIdLayer(Layer):
    """Ids of the first maximum of each row."""

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        if config.beam_size > 1:
            raise ConfigError(f"{self}: beam_size {config.beam_size} is not supported yet; only 1 is")

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the ids.

        Raises: ConfigError: if the input has no values.
        """
        one = inputs[0]
        if one.value is None:
            raise ConfigError(f"{self} needs an input of numbers, not of ids")
        return Argument(ids=one.value.argmax(axis=1), starts=one.starts, sub_starts=one.sub_starts)


LAYERS: dict[str, type[Layer]] = {"maxid": MaxIdLayer}

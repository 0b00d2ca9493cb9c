"""The layer that logs its inputs, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime import glog
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.arrays.parameters import ParameterTable
from trainer.arrays.text import spell_fields
from trainer.layers.base import Layer


class PrintLayer(Layer):
    """Logs `user_arg` with an input in place of each %s. Without `user_arg`, logs `layer=<name>` and each input.

    The output of the layer is its first input; no layer reads this output.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._format = config.user_arg or "\n".join(f"layer={one.input_layer_name} %s" for one in config.inputs)
        if self._format.count("%s") != len(config.inputs):
            raise ConfigError(
                f"{self}: its format contains %s {self._format.count('%s')} times, but the layer has "
                f"{len(config.inputs)} inputs"
            )

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Log one record."""
        pieces = self._format.split("%s")
        texts = [spell(one) for one in inputs]
        record = "".join(piece + text for piece, text in zip(pieces, [*texts, ""], strict=True))
        glog.info(record.removesuffix("\n"))
        return inputs[0]


def spell(one: Argument) -> str:
    """Return the values of an argument and the positions of its sequences; ids are not shown."""
    return "".join(f"{name}:\n{text}" for name, text in spell_fields(one))

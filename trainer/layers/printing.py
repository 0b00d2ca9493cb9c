"""The layer that logs its inputs, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

from proto.ModelConfig_pb2 import LayerConfig
from pserver import glog
from pserver.errors import ConfigError
from trainer.arguments import Argument
from trainer.evaluators.base import spell_rows, spell_starts
from trainer.layers.base import Layer
from trainer.parameters import ParameterTable


class PrintLayer(Layer):
    """Logs `user_arg` with each input in the place of a %s; without it, `layer=<name>` and each input.

    Its output is its first input, which nobody reads.
    """

    takes_gradient = False

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        if not config.inputs:
            raise ConfigError(f"{self} has no input")
        self._format = config.user_arg or "\n".join(f"layer={one.input_layer_name} %s" for one in config.inputs)
        if self._format.count("%s") != len(config.inputs):
            raise ConfigError(
                f"{self}: its format has {self._format.count('%s')} times %s for {len(config.inputs)} inputs"
            )

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Log one record."""
        pieces = self._format.split("%s")
        texts = [spell(one) for one in inputs]
        record = "".join(piece + text for piece, text in zip(pieces, [*texts, ""], strict=True))
        glog.info(record.removesuffix("\n"))
        return inputs[0]


def spell(one: Argument) -> str:
    """Return the values of an argument and where its sequences begin; ids were never shown."""
    fields = []
    if one.value is not None:
        fields.append(("value", spell_rows(one.value)))
    if one.starts is not None:
        fields.append(("sequence pos", spell_starts(one.starts)))
    if one.sub_starts is not None:
        fields.append(("sub-sequence pos", spell_starts(one.sub_starts)))
    return "".join(f"{name}:\n{text}" for name, text in fields)


LAYERS: dict[str, type[Layer]] = {"print": PrintLayer}

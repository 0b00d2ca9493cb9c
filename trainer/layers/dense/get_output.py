"""The layer that returns an additional output of its input layer, such as the cell state of an LSTM step."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument, Array
from trainer.arrays.parameters import ParameterTable
from trainer.layers.base import Layer


class GetOutputLayer(Layer):
    """Passes on one output of the input layer; `input_layer_argument` is the name of this output.

    The network adds the gradient of this layer to the gradient of the named output.
    """

    def __init__(self, config: LayerConfig, parameters: ParameterTable) -> None:
        super().__init__(config, parameters)
        self.require_inputs(1, 1)
        self._output = config.inputs[0].input_layer_argument

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Return the output that `input_layer_argument` names.

        Raises: ConfigError: the input has no output of this name.
        """
        found = inputs[0].value if not self._output else inputs[0].extras.get(self._output)
        if found is None:
            known = ", ".join(inputs[0].extras) or "no further output"
            raise ConfigError(f"{self}: its input has no output '{self._output}'; it has {known}")
        return inputs[0].with_value(found)

    def backward(self, gradient: Array, wanted: Sequence[bool]) -> list[Array | None]:
        """Return the gradient."""
        return [gradient]

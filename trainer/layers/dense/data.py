"""The data layer, whose output is a slot of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from paddle_base.runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.layers.base import Layer


class DataLayer(Layer):
    """Represents a slot of the data provider; the network uses the rows of the slot as the output of this layer."""

    takes_gradient = False

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Raise an error: the network calls this method only if the batch has no slot for the layer.

        Raises: ConfigError: always.
        """
        raise ConfigError(
            f"data layer {self.name} gets no data: an evaluator reads it, but no output depends on it, so it is not an "
            "input of the network; name all data layers in inputs(...)"
        )

"""The data layer: a slot of the batch, as it is."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import ConfigError
from trainer.arrays.arguments import Argument
from trainer.layers.base import Layer


class DataLayer(Layer):
    """Stand for a slot of the data provider; the network puts the slot's rows in place of this layer's output."""

    takes_gradient = False

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Refuse: the network calls this only where the batch has no such slot.

        Raises: ConfigError: always.
        """
        raise ConfigError(
            f"data layer {self.name} gets no data: no output depends on it, so that it is no input of the network, but "
            "an evaluator reads it; name all data layers in inputs(...)"
        )


LAYERS: dict[str, type[Layer]] = {"data": DataLayer}

"""The data layer: a slot of the batch, as it is."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.errors import BugError
from trainer.arrays.arguments import Argument
from trainer.layers.base import Layer


class DataLayer(Layer):
    """Stands for a slot of the data provider; the network puts the slot's rows in its place."""

    takes_gradient = False

    def forward(self, inputs: Sequence[Argument]) -> Argument:
        """Never called: a batch always has the slot."""
        raise BugError(f"data layer {self.name} was asked for a value of its own")


LAYERS: dict[str, type[Layer]] = {"data": DataLayer}

"""The networks of one model for pictures of several sizes. All have the same parameters.

Source: spec/v2.md section 3, the frame height and width of a slot; v0.11's deep_speech_2 pads each batch to a length of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from paddle_base.proto.ModelConfig_pb2 import ModelConfig
from paddle_base.runtime.errors import ConfigError
from trainer.network.data_parallel import AnyNetwork
from trainer.network.network import Network

Shapes = Mapping[str, tuple[int, ...]]  # data layer -> (height, width) or (channels, height, width) of its pictures
Resize = Callable[[Shapes], ModelConfig]  # returns the model for pictures of other sizes; raises ConfigError

KEPT = 4  # networks; each has arrays of the size of its last batch


class PictureNetworks:
    """Makes a network for each size of pictures, and keeps the latest ones. One thread computes them.

    Args: own: the network for the sizes of the data layers. resize: see `Resize`. further: see `Network`.
    """

    def __init__(self, own: AnyNetwork, resize: Resize, further: Collection[str] = ()) -> None:
        self._own, self._resize, self._further = own, resize, further
        self._latest: dict[tuple[tuple[str, tuple[int, ...]], ...], Network] = {}

    def find(self, shapes: Shapes) -> AnyNetwork:
        """Return the network for pictures of these shapes, which are those of the data layers if there is none here.

        Raises: ConfigError: a layer cannot take them.
        """
        if not shapes:
            return self._own
        key = tuple(sorted(shapes.items()))
        network = self._latest.pop(key, None)
        if network is None:
            model = self._resize(shapes)
            self._compare_parameters(model)
            network = _ResizedNetwork(model, self._own, self._further)
        self._latest[key] = network
        if len(self._latest) > KEPT:
            del self._latest[next(iter(self._latest))]
        return network

    def _compare_parameters(self, model: ModelConfig) -> None:
        """Raise ConfigError if a layer has another number of parameters for pictures of another size."""
        for one in model.parameters:
            size = self._own.parameters[one.name].size
            if one.size != size:
                raise ConfigError(f"for it, parameter {one.name} would have {one.size} numbers instead of {size}")


class _ResizedNetwork(Network):
    """A network in place of another one, of which checkpoints have the state."""

    def __init__(self, model: ModelConfig, own: AnyNetwork, further: Collection[str]) -> None:
        super().__init__(model, own.parameters, further)
        self._own = own

    def carried(self) -> dict[str, Any]:
        """Return the state of the other network."""
        return self._own.carried()

    def carry_on(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the other network."""
        self._own.carry_on(state)

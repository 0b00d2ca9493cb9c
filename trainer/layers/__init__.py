"""The layers that compute, one module a family; `find_layer` looks a LayerConfig's type up."""

from __future__ import annotations

from pserver.errors import ConfigError
from trainer.layers.base import Layer
from trainer.layers.costs import CrossEntropyCost, SquareErrorCost
from trainer.layers.data import DataLayer
from trainer.layers.fc import FullyConnectedLayer
from trainer.layers.maxid import MaxIdLayer

LAYERS: dict[str, type[Layer]] = {
    "data": DataLayer,
    "fc": FullyConnectedLayer,
    "maxid": MaxIdLayer,
    "multi-class-cross-entropy": CrossEntropyCost,
    "square_error": SquareErrorCost,
}


def find_layer(kind: str, name: str) -> type[Layer]:
    """Return the class of a layer type.

    Raises: ConfigError: naming the type that is not supported yet, and those that are.
    """
    found = LAYERS.get(kind)
    if found is None:
        supported = ", ".join(sorted(LAYERS))
        raise ConfigError(f"layer {name}: type '{kind}' is not supported yet; supported are {supported}")
    return found

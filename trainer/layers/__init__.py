"""The layers that compute, one module a family; `find_layer` looks a LayerConfig's type up."""

from __future__ import annotations

from pserver.errors import ConfigError
from trainer.layers import (
    arithmetic,
    batch_norm,
    conv,
    costs,
    crf,
    ctc,
    data,
    data_norm,
    fc,
    get_output,
    gru,
    image_places,
    image_values,
    lstm,
    maxid,
    mixed,
    norm,
    pool,
    products,
    recurrent,
    reshaping,
    sequence_pooling,
    similarity,
)
from trainer.layers.base import Layer

FAMILIES = (
    arithmetic,
    batch_norm,
    conv,
    costs,
    crf,
    ctc,
    data,
    data_norm,
    fc,
    get_output,
    gru,
    image_places,
    image_values,
    lstm,
    maxid,
    mixed,
    norm,
    pool,
    products,
    recurrent,
    reshaping,
    sequence_pooling,
    similarity,
)

LAYERS: dict[str, type[Layer]] = {kind: layer for family in FAMILIES for kind, layer in family.LAYERS.items()}


def find_layer(kind: str, name: str) -> type[Layer]:
    """Return the class of a layer type.

    Raises: ConfigError: naming the type that is not supported yet, and those that are.
    """
    found = LAYERS.get(kind)
    if found is None:
        supported = ", ".join(sorted(LAYERS))
        raise ConfigError(f"layer {name}: type '{kind}' is not supported yet; supported are {supported}")
    return found

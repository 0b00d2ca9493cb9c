"""The layers that compute, one module a family; `find_layer` looks a LayerConfig's type up."""

from __future__ import annotations

from proto.ModelConfig_pb2 import LayerConfig
from pserver.errors import ConfigError
from trainer.layers import (
    arithmetic,
    batch_norm,
    class_costs,
    conv,
    costs,
    crf,
    ctc,
    data,
    data_norm,
    detection,
    embedding,
    fc,
    generator,
    get_output,
    group,
    gru,
    image_places,
    image_values,
    lstm,
    maxid,
    mixed,
    norm,
    pool,
    printing,
    products,
    ranking_costs,
    recurrent,
    reshaping,
    selection,
    selective_fc,
    sequence_pooling,
    sequences,
    similarity,
    window_fc,
)
from trainer.layers.base import Layer

FAMILIES = (
    arithmetic,
    batch_norm,
    class_costs,
    conv,
    costs,
    crf,
    ctc,
    data,
    data_norm,
    detection,
    fc,
    generator,
    get_output,
    group,
    gru,
    image_places,
    image_values,
    lstm,
    maxid,
    mixed,
    norm,
    pool,
    printing,
    products,
    ranking_costs,
    recurrent,
    reshaping,
    selection,
    selective_fc,
    sequence_pooling,
    sequences,
    similarity,
    window_fc,
)

LAYERS: dict[str, type[Layer]] = {kind: layer for family in FAMILIES for kind, layer in family.LAYERS.items()}
INTERNAL = generator.LAYERS.keys() | window_fc.LAYERS.keys()  # types that no config may name: the network makes them


def find_layer(config: LayerConfig) -> type[Layer]:
    """Return the class that computes a layer: that of its type, or one that is faster for this case of it.

    Raises: ConfigError: naming the type that is not supported yet, and those that are.
    """
    if config.type == "mixed":
        for special in (embedding.EmbeddingLayer, fc.FullyConnectedLayer):
            if special.fits(config):
                return special
    found = LAYERS.get(config.type)
    if found is None:
        supported = ", ".join(sorted(LAYERS.keys() - INTERNAL))
        raise ConfigError(f"layer {config.name}: type '{config.type}' is not supported yet; supported are {supported}")
    return found

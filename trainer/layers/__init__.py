"""The layers of the network: classes that compute outputs and gradients.

Each module contains a family of layers; `find_layer` selects the class of a layer by the type in its LayerConfig.

Add a new type of layer in this order:

1. Write a subclass of `base.Layer` with `forward` and `backward` in the module of its family. Enter the type in
   `LAYERS` of that module. Enter a new module in `FAMILIES` below.
2. Write the config function in `trainer/config/language/layers/`, with the decorator `@helper("layers")`. Enter the
   name of the function in `HELPERS` of `trainer/config/building/names.py`. A row in
   `trainer/config/v1/layer_kinds.py` makes the type known to `Layer(type=...)`.
3. Test the gradients in `tests/unit/trainer/layers/<family>/` with `check_gradients` of `tests/layer_checks.py`. Test
   the config message of the layer in `tests/unit/trainer/config/language/`.
4. Run `make docs`; it writes the row of the layer in docs/layers.md.
"""

from __future__ import annotations

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.layers.base import Layer
from trainer.layers.cost import beam, class_sampling, costs, crf, ctc, ranking, validation
from trainer.layers.dense import (
    arithmetic,
    data,
    data_norm,
    fc,
    get_output,
    maxid,
    printing,
    products,
    reshaping,
    selection,
    selective_fc,
    similarity,
)
from trainer.layers.image import batch_norm, conv, detection, norm, pixel_values, places, pool
from trainer.layers.mixed import embedding, mixed
from trainer.layers.recurrent import agents, generator, group, gru, lstm, mdlstm, simple
from trainer.layers.sequence import attention, pooling, sequences, window_fc

FAMILIES = (
    agents,
    arithmetic,
    attention,
    batch_norm,
    beam,
    class_sampling,
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
    places,
    pixel_values,
    lstm,
    maxid,
    mdlstm,
    mixed,
    norm,
    pool,
    printing,
    products,
    ranking,
    simple,
    reshaping,
    selection,
    selective_fc,
    pooling,
    sequences,
    similarity,
    validation,
    window_fc,
)

LAYERS: dict[str, type[Layer]] = {kind: layer for family in FAMILIES for kind, layer in family.LAYERS.items()}
# The program makes layers of these types from other layers; a config must not use these types.
INTERNAL = generator.LAYERS.keys() | window_fc.LAYERS.keys() | attention.LAYERS.keys() | {gru.GROUP_RUN}


def find_layer(config: LayerConfig) -> type[Layer]:
    """Return the class that computes a layer: the class of its type, or a faster class for a special case.

    Raises: ConfigError: the type is not supported; the text lists the supported types.
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

"""The layers of the network: classes that compute outputs and gradients.

Each family of layers is a module; `find_layer` selects the class by the type in a LayerConfig.

To add a layer, in this order:

1. The class: a subclass of `base.Layer` with `forward` and `backward`, in the module of its family, and its type in
   that module's `LAYERS`. A new module goes into `FAMILIES` below.
2. The config function: in `trainer/config/language/layers/`, with `@helper("layers")`, and its name in `HELPERS` of
   `trainer/config/building/names.py`. A row in `trainer/config/v1/layer_kinds.py` makes the type known to
   `Layer(type=...)`.
3. The tests: the gradients in `tests/unit/trainer/layers/<family>/` by `check_gradients` of `tests/layer_checks.py`,
   and the message in `tests/unit/trainer/config/language/`.
4. The documentation: `make docs` writes the row of the layer in docs/layers.md.
"""

from __future__ import annotations

from proto.ModelConfig_pb2 import LayerConfig
from runtime.errors import ConfigError
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
# types of layers that only this program makes, from other layers; a config must not use them
INTERNAL = generator.LAYERS.keys() | window_fc.LAYERS.keys() | attention.LAYERS.keys() | {gru.GROUP_RUN}


def find_layer(config: LayerConfig) -> type[Layer]:
    """Return the class that computes a layer: the class of its type, or a faster class for a special case.

    Raises: ConfigError: the type is not supported; the text lists the supported ones.
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

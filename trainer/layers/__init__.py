"""The layers of the network: classes that compute outputs and gradients.

Each module contains a family of layers; `find_layer` selects the class of a layer by the type in its LayerConfig.

Add a new type of layer in this order:

1. Write a subclass of `base.Layer` with `forward` and `backward` in the module of its family, or in a new module.
2. Add the record of the type to `_RECORDS` of `trainer/config/v1/layer_types.py`. The class is found by this record.
   `check_gradients` of the tests fails if a record wrongly lacks `is_coupled`.
3. Write the config function in `trainer/config/language/layers/`, with the decorator `@helper("layers")`.
4. Test the gradients in `tests/unit/trainer/layers/<family>/` with `check_gradients` of `tests/layer_checks.py`. Test
   the config message of the layer in `tests/unit/trainer/config/language/`.
5. Run `make docs`; it writes the row of the layer in docs/layers.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from paddle_base.proto.ModelConfig_pb2 import LayerConfig
from paddle_base.runtime.errors import ConfigError
from trainer.config.v1.layer_types import LAYER_TYPES
from trainer.layers.base import Layer
from trainer.layers.dense.fc import FullyConnectedLayer
from trainer.layers.mixed.embedding import EmbeddingLayer
from trainer.layers.recurrent.generator import GeneratorLayer
from trainer.layers.recurrent.gru import GROUP_RUN, GruRunLayer
from trainer.layers.recurrent.subnetworks import GENERATOR
from trainer.layers.sequence.attention import SCORES, WEIGHTED_SUMS, FrameScoreLayer, WeightedSumLayer
from trainer.layers.sequence.window_fc import MAXIMA, SUMS, WindowMaximumLayer, WindowSumLayer


def _import_class(place: str) -> type[Layer]:
    module, _, name = place.rpartition(".")
    return cast("type[Layer]", getattr(import_module(f"{__name__}.{module}"), name))


# The program makes layers of these types from other layers; a config must not use these types.
INTERNAL: dict[str, type[Layer]] = {
    GENERATOR: GeneratorLayer,
    GROUP_RUN: GruRunLayer,
    MAXIMA: WindowMaximumLayer,
    SCORES: FrameScoreLayer,
    SUMS: WindowSumLayer,
    WEIGHTED_SUMS: WeightedSumLayer,
}


class LayerClasses(Mapping[str, type[Layer]]):
    """The class of each type of layer. The module of a class is imported when its class is wanted."""

    def __init__(self) -> None:
        self._imported = dict(INTERNAL)

    def __getitem__(self, kind: str) -> type[Layer]:
        if kind not in self._imported:
            self._imported[kind] = _import_class(LAYER_TYPES[kind].computes)
        return self._imported[kind]

    def __iter__(self) -> Iterator[str]:
        return iter({**LAYER_TYPES, **INTERNAL})

    def __len__(self) -> int:
        return len({**LAYER_TYPES, **INTERNAL})


LAYERS = LayerClasses()


def find_layer(config: LayerConfig) -> type[Layer]:
    """Return the class that computes a layer: the class of its type, or a faster class for a special case.

    Raises: ConfigError: the type is not supported; the text lists the supported types.
    """
    if config.type == "mixed":
        for special in (EmbeddingLayer, FullyConnectedLayer):
            if special.fits(config):
                return special
    found = LAYERS.get(config.type)
    if found is None:
        supported = ", ".join(sorted(LAYER_TYPES))
        raise ConfigError(f"layer {config.name}: type '{config.type}' is not supported yet; supported are {supported}")
    return found

"""The whole language: importing this module registers every name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.config import (
    activations,
    attrs,
    data_sources,
    evaluators,
    layer,
    layer_math,
    layers,
    networks,
    networks_image,
    optimizers,
    poolings,
    raw,
    raw_data,
    raw_groups,
    raw_inputs,
    raw_layers,
    sequence_networks,
)
from trainer.config.names import (
    HELPERS,
    UnknownName,
    built,
    lookup,
    suggestion,
)

__all__ = [
    "HELPERS",
    "activations",
    "attrs",
    "data_sources",
    "evaluators",
    "exports",
    "layer",
    "layer_math",
    "layers",
    "lookup",
    "networks",
    "networks_image",
    "optimizers",
    "poolings",
    "raw",
    "raw_data",
    "raw_groups",
    "raw_inputs",
    "raw_layers",
    "raw_names",
    "sequence_networks",
]


def raw_names() -> dict[str, Any]:
    """Return what a config finds without an import, but for `Import`, which knows the importing file."""
    return raw.obsolete_settings() | dict(built("raw"))


def exports(module: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` for a module that re-exports a sub-module of the legacy's helpers."""
    names = list(HELPERS[module])

    def get(name: str) -> Any:
        if name in HELPERS[module]:
            return lookup(name)
        raise UnknownName(f"paddle.trainer_config_helpers.{module} has no {name!r}{suggestion(name)}")

    return names, get

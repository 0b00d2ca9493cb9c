"""The whole config language: the import of this module registers every name of the language."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from trainer.config import data_sources
from trainer.config.building import activations, attrs, layer
from trainer.config.building.names import UnknownName, built, lookup, suggestion
from trainer.config.language import (
    evaluators,
    layer_math,
    layers,
    networks,
    optimizers,
    poolings,
)
from trainer.config.v1 import data as v1_data
from trainer.config.v1 import groups as v1_groups
from trainer.config.v1 import inputs as v1_inputs
from trainer.config.v1 import layers as v1_layers
from trainer.config.v1 import settings as v1_settings

__all__ = [
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
    "optimizers",
    "poolings",
    "v1_data",
    "v1_groups",
    "v1_inputs",
    "v1_layers",
    "v1_names",
    "v1_settings",
]


def v1_names() -> dict[str, Any]:
    """Return the names that a configuration can use without an import.

    The result does not include `Import`, because each file gets its own `Import` function.
    """
    return v1_settings.obsolete_settings() | dict(built("v1"))


def exports(module: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` for a module that re-exports a sub-module of paddle.trainer_config_helpers."""
    names = list(built(module))

    def get(name: str) -> Any:
        with contextlib.suppress(UnknownName):  # as in v0.10, whose modules imported each other's names
            return lookup(name)
        raise UnknownName(f"paddle.trainer_config_helpers.{module} has no {name!r}{suggestion(name)}")

    return names, get

"""The whole config language: the import of this module registers every name of the language."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from trainer.config import data_sources  # noqa: F401 - the import registers its names, as the next imports do
from trainer.config.building import activations, attrs, layer  # noqa: F401
from trainer.config.building.names import UnknownName, built, lookup, suggestion
from trainer.config.language import evaluators, layer_math, layers, networks, optimizers, poolings  # noqa: F401
from trainer.config.v1 import data, groups, inputs, settings  # noqa: F401
from trainer.config.v1 import layers as v1_layers  # noqa: F401


def v1_names() -> dict[str, Any]:
    """Return the names that a configuration can use without an import.

    The result does not include `Import`, because each file gets its own `Import` function.
    """
    return settings.obsolete_settings() | dict(built("v1"))


def exports(module: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` for a module that re-exports a sub-module of paddle.trainer_config_helpers."""
    names = list(built(module))

    def get(name: str) -> Any:
        with contextlib.suppress(UnknownName):  # as in v0.10, whose modules imported each other's names
            return lookup(name)
        raise UnknownName(f"paddle.trainer_config_helpers.{module} has no {name!r}{suggestion(name)}")

    return names, get

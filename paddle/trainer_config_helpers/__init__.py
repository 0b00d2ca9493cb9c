"""The config language under its old name: `from paddle.trainer_config_helpers import *` is the first line of most configs.

The names are those of the legacy; one that is not built yet raises ConfigError when it is called.
"""
from typing import Any

from paddle.trainer_config_helpers import (
    activations,
    attrs,
    config_parser_utils,
    data_sources,
    evaluators,
    layers,
    networks,
    optimizers,
    poolings,
)
from trainer.config.language import HELPERS, lookup

_MODULES = ["activations", "attrs", "config_parser_utils", "data_sources", "evaluators", "layers", "networks", "optimizers",
            "poolings"]
__all__ = [*_MODULES, *(name for names in HELPERS.values() for name in names)]


def __getattr__(name: str) -> Any:
    return lookup(name)

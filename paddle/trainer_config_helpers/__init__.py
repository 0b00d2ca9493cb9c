"""The config language under its old name. Most configs begin with `from paddle.trainer_config_helpers import *`.

The names are the names of v0.10. A name that is not implemented raises ConfigError when a config uses it. The
sub-modules are also part of the language. For example, old configs call `layer_math.exp(x)`.
"""

import importlib
from typing import Any

from trainer.config.building.names import SUBMODULES, helper_names, lookup

__all__ = [*SUBMODULES, *helper_names()]


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return lookup(name)

"""The example of an extension module of configs: `--config_args=extension_module_name=...` names such a module.

Source: python/paddle/trainer/config_parser_extension.py of v0.10.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainer.config.v1.data import SimpleData

__all__ = ["SimpleData", "get_config_funcs"]


def get_config_funcs(_trainer_config: Any) -> Mapping[str, Callable[..., Any]]:
    """Return the functions that the module adds to the names of a config."""
    return {"SimpleData": SimpleData}

"""The config parser under its old name: `parse_config(path, config_args)` returns the TrainerConfig message.

A config can use the names of the config language without an import. As in v0.10, a config can also import the names
from this module.
"""

from collections.abc import Callable
from typing import Any

from paddle.older_modules import member
from trainer.config import parse_config
from trainer.config.all_names import v1_names
from trainer.config.building.log import logger
from trainer.config.building.names import UnknownName, suggestion

_V1_NAMES = v1_names()
__all__ = ["logger", "parse_config", "parse_config_and_serialize", *_V1_NAMES]


def parse_config_and_serialize(config: str | Callable[[], object], config_arg_str: str = "") -> bytes:
    """Return the TrainerConfig message of a config as bytes."""
    return parse_config(config, config_arg_str).SerializeToString()


def __getattr__(name: str) -> Any:
    if name in _V1_NAMES:
        return _V1_NAMES[name]
    raise UnknownName(f"{__name__} has no {name!r}{member(__name__, name) or suggestion(name)}")

"""The config parser under its old name: `parse_config(path, config_args)` returns the TrainerConfig message.

A config can use the names of the config language without an import. As in v0.10, a config can also import the names
from this module.
"""

from typing import Any

from trainer.config import parse_config
from trainer.config.all_names import v1_names
from trainer.config.building.log import logger
from trainer.config.building.names import UnknownName, suggestion

_V1_NAMES = v1_names()
__all__ = ["logger", "parse_config", *_V1_NAMES]


def __getattr__(name: str) -> Any:
    if name in _V1_NAMES:
        return _V1_NAMES[name]
    raise UnknownName(f"paddle.trainer.config_parser has no {name!r}{suggestion(name)}")

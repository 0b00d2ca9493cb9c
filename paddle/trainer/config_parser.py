"""The parser under its old name: `parse_config(path, config_args)` returns the TrainerConfig message.

What a config finds without an import can be imported from here, as modules that a config imports did.
"""

from typing import Any

from trainer.config import parse_config
from trainer.config.language import raw_names
from trainer.config.log import logger

_RAW = raw_names()
__all__ = ["logger", "parse_config", *_RAW]


def __getattr__(name: str) -> Any:
    if name in _RAW:
        return _RAW[name]
    raise AttributeError(f"paddle.trainer.config_parser has no {name!r}")

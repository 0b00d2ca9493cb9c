"""The parser under its old name: `parse_config(path, config_args)` returns the TrainerConfig message."""

from trainer.config import parse_config
from trainer.config.log import logger

__all__ = ["logger", "parse_config"]

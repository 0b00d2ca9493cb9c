"""Functions with which a Python program parses a config."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("config_parser_utils")

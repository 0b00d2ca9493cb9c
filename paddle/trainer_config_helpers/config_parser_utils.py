"""Parsing from a Python program."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("config_parser_utils")

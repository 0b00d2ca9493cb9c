"""Parsing from a Python program."""

from trainer.config.language import exports

__all__, __getattr__ = exports("config_parser_utils")

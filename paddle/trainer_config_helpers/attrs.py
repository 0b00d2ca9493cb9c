"""Attributes of parameters and layers."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("attrs")

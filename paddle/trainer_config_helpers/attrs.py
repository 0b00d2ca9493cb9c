"""Attributes of parameters and layers."""

from trainer.config.language import exports

__all__, __getattr__ = exports("attrs")

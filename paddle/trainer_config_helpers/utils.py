"""A decorator for functions that have a successor."""

from trainer.config.default_decorators import deprecated

__all__ = ["deprecated"]

"""A decorator for functions that have a successor."""

from trainer.config.language.default_decorators import deprecated

__all__ = ["deprecated"]

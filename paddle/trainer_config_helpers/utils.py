"""A decorator that marks functions as deprecated."""

from trainer.config.language.default_decorators import deprecated

__all__ = ["deprecated"]

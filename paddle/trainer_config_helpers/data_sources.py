"""Declaration of data providers."""

from trainer.config.language import exports

__all__, __getattr__ = exports("data_sources")

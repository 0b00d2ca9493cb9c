"""settings() and optimisers."""

from trainer.config.all_names import exports

__all__, __getattr__ = exports("optimizers")

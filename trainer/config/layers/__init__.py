"""The layer functions, one module per family; importing a module registers its names."""

from trainer.config.layers import arithmetic, basic, cost, structured

__all__ = ["arithmetic", "basic", "cost", "structured"]

"""The layer functions, one module per family; importing a module registers its names."""
from trainer.config.layers import basic, cost, structured

__all__ = ["basic", "cost", "structured"]

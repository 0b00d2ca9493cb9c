"""The layer functions, one module per family; importing a module registers its names."""

from trainer.config.layers import (
    arithmetic,
    basic,
    cost,
    groups,
    levels,
    mixed,
    projections,
    recurrent,
    sequence,
    structured,
)

__all__ = [
    "arithmetic",
    "basic",
    "cost",
    "groups",
    "levels",
    "mixed",
    "projections",
    "recurrent",
    "sequence",
    "structured",
]

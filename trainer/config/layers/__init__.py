"""The layer functions, one module per family; importing a module registers its names."""

from trainer.config.layers import (
    arithmetic,
    basic,
    cost,
    detection,
    groups,
    image,
    levels,
    maps,
    mixed,
    projections,
    recurrent,
    sequence,
    structured,
    support,
)

__all__ = [
    "arithmetic",
    "basic",
    "cost",
    "detection",
    "groups",
    "image",
    "levels",
    "maps",
    "mixed",
    "projections",
    "recurrent",
    "sequence",
    "structured",
    "support",
]

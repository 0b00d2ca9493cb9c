"""The layer functions, one module per family; importing a module registers its names."""

from trainer.config.language.layers import (
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
    support,
)
from trainer.config.language.maps import detection, image, maps

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

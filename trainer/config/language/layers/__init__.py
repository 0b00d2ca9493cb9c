"""The layer functions, with one module per family; the import of a module registers the names of its functions."""

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

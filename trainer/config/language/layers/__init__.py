"""The layer functions, with one module per family; the import of a module registers the names of its functions."""

from trainer.config.language.layers import (  # noqa: F401 - the import registers the names of the functions
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
from trainer.config.language.maps import detection, image, maps  # noqa: F401

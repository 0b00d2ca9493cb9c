"""The constants of the config language: levels of aggregation and expansion of sequences.

Source: spec/config.md section 8.
"""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import wrong
from trainer.config.building.names import public

_LEVELS = ("non-seq", "seq")


@public("layers")
class AggregateLevel:
    """How a layer reduces sequences: to one row for each sequence, or to one row for each sub-sequence."""

    TO_NO_SEQUENCE = EACH_TIMESTEP = "non-seq"
    TO_SEQUENCE = EACH_SEQUENCE = "seq"


@public("layers")
class ExpandLevel:
    """What a layer repeats: the single row of each sequence, or the row that belongs to each sub-sequence."""

    FROM_NO_SEQUENCE = FROM_TIMESTEP = "non-seq"
    FROM_SEQUENCE = "seq"


def to_level(argument: str, value: Any) -> str:
    """Return the text of a level in the message."""
    if value not in _LEVELS:
        raise wrong(argument, value, "it must be one of the constants of AggregateLevel or ExpandLevel")
    return str(value)

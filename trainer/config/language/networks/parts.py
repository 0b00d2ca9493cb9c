"""Checks that several networks share."""

from __future__ import annotations

from typing import Any

from trainer.config.building.argument_errors import to_size, wrong
from trainer.config.building.layer import LayerOutput, columns_of


def columns_of_part(source: LayerOutput, parts: int, size: Any) -> int:
    """Return the given size, or else that of one of `parts` equal parts of the source's columns.

    Raises: ArgumentError: if the columns cannot be divided by the number of parts.
    """
    if size is not None:
        return to_size("size", size)
    columns, rest = divmod(columns_of(source), parts)
    if rest:
        raise wrong("input", source, f"its size must be a multiple of {parts}")
    return columns

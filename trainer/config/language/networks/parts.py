"""Functions shared by several networks: checks, and the forwarding of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.config.building.argument_errors import to_size, wrong
from trainer.config.building.layer import LayerOutput, columns_of


def columns_of_part(source: LayerOutput, parts: int, size: Any) -> int:
    """Return `size`; without a size, return the number of columns of the source divided by `parts`.

    Raises: ArgumentError: the number of columns is not a multiple of `parts`.
    """
    if size is not None:
        return to_size("size", size)
    columns, rest = divmod(columns_of(source), parts)
    if rest:
        raise wrong("input", source, f"its size must be a multiple of {parts}")
    return columns


def without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return all arguments of a call except the arguments with the given names.

    Args: given: `locals()` of the function, taken before the function defines other names.
    """
    return {name: value for name, value in given.items() if name not in names}


def with_prefix(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return those arguments of a call whose names begin with the prefix, under names without the prefix.

    Args: given: `locals()` of the function, taken before the function defines other names.
    """
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}

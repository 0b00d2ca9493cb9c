"""Notes: the JSON objects of messages, written and read within limits.

A note comes from another program, so its size, its depth and the number of its values are checked before it is parsed
(`paddle_base.runtime.bounded_json`). No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle_base.runtime.bounded_json import MAX_INTEGER, BoundedJsonError, dump_bounded, is_integer, parse_bounded
from paddle_base.runtime.bounded_json import show_value as show
from paddle_base.runtime.errors import BugError
from paddle_base.runtime.schema import Integer, Record, SchemaError, Shape

__all__ = ["MAX_INTEGER", "is_integer", "show"]  # modules that read notes import these names from here

MAX_DEPTH = 32  # maximum levels of nested objects and lists; a trainer's part of a checkpoint has 8 levels
# maximum number of values in lists and objects; the description of 10,000 parameters has 110,000 values. A value takes
# at least 64 bytes of memory if it is a list.
MAX_VALUES = 1 << 20
MAX_TEXT = 4096  # maximum number of characters of a text


class NoteError(ValueError):
    """A note that exceeds the limits, or is not a JSON object."""


def dump(note: Mapping[str, Any], depth: int = MAX_DEPTH) -> bytes:
    """Return the bytes of a note.

    Args: depth: maximum nesting depth of objects and lists.
    Raises: NoteError: the other side would refuse the note.
    """
    if not note:
        return b""
    try:
        return dump_bounded(note, depth=depth, values=MAX_VALUES)
    except BoundedJsonError as exc:
        raise NoteError(f"a note {exc}") from exc


def parse(data: bytes, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Return the object of a note.

    Args: depth: maximum nesting depth of objects and lists.
    Raises: NoteError: the note is invalid; the message describes the problem.
    """
    if not data:
        return {}
    try:
        return parse_bounded(data, depth=depth, values=MAX_VALUES)
    except BoundedJsonError as exc:
        raise NoteError(f"a note {exc}") from exc


# ----- Fields of a note -----

INTEGER = Integer(0, MAX_INTEGER)
OBJECT = Record()


def get(note: Mapping[str, Any], key: str, shape: Shape) -> Any:
    """Return a field of a note.

    Raises: BugError: the field is missing, or does not have this shape; the message names the field.
    """
    value = note.get(key)
    if not shape.fits(value):  # which takes half of the time of `check`
        try:
            shape.check(value, f"its {key}")
        except SchemaError as exc:
            raise BugError(str(exc)) from exc
    return value

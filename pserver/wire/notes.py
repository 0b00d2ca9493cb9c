"""Notes: the JSON objects of messages, written and read within limits.

A note comes from another program, so its size, its depth and the number of its values are checked before it is parsed
(`paddle_base.runtime.bounded_json`). No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle_base.runtime.bounded_json import MAX_INTEGER, BoundedJsonError, dump_bounded, is_integer, parse_bounded
from paddle_base.runtime.bounded_json import show_value as show
from paddle_base.runtime.errors import BugError

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


def get_integer(note: Mapping[str, Any], key: str, least: int = 0, most: int = MAX_INTEGER) -> int:
    """Return an integer of a note.

    Raises: BugError: the value is not an integer from `least` to `most`.
    """
    value = note.get(key)
    if not isinstance(value, int) or not is_integer(value, least, most):
        raise BugError(f"its {key} is {show(value)}, not an integer from {least} to {most}")
    return value


def get_text(note: Mapping[str, Any], key: str, most: int = MAX_TEXT) -> str:
    """Return a text of a note.

    Raises: BugError: the value is not a text, or is longer than the limit.
    """
    value = note.get(key)
    if not isinstance(value, str) or len(value) > most:
        raise BugError(f"its {key} is {show(value)}, not a text of at most {most} characters")
    return value


def get_object(note: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return an object of a note, or None if it is missing or null.

    Raises: BugError: the value has another type.
    """
    value = note.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BugError(f"its {key} is {show(value)}, not an object")
    return value


def get_list(note: Mapping[str, Any], key: str) -> Sequence[Any]:
    """Return a list of a note.

    Raises: BugError: the value is not a list.
    """
    value = note.get(key)
    if not isinstance(value, list):
        raise BugError(f"its {key} is {show(value)}, not a list")
    return value

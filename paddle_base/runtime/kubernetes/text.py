"""Pure functions that display texts and values from the API server, and that read quantities."""

from __future__ import annotations

import json
import re
from decimal import Decimal

_QUANTITY = re.compile(r"\+?([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})")
_UNITS = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
TEXT_LIMIT = 1000  # maximum characters of a text of the API server


def printable(text: str) -> str:
    """Return a text with escapes in place of control characters, except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )


def one_line(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return the beginning of an untrusted text as printable part of a line, with spaces for line breaks."""
    return printable(" ".join(text[:limit].split())) + ("..." if len(text) > limit else "")


def shorten(value: object) -> str:
    """Return a JSON value in a short form for an error message."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return one_line(json.dumps(value, ensure_ascii=False), 60)


def parse_quantity(text: object) -> Decimal:
    """Return the number that a quantity such as 500m or 1Gi stands for.

    Raises: ValueError: the text is not a quantity.
    """
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    number, suffix = (Decimal(match[1]), match[2]) if match else (Decimal(), "?")
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    if suffix in _UNITS:
        return number.scaleb(_UNITS[suffix])
    if suffix[:1] in "eE" and suffix[1:].lstrip("+-").isdigit():
        return number.scaleb(int(suffix[1:]))
    raise ValueError(f"{str(text)[:40]!r} is not a Kubernetes quantity")

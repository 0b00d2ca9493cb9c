"""Pure functions that display texts and values from the API server."""

from __future__ import annotations

import json

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

"""Make HTML and SVG. All text that is not markup is escaped, so names and messages cannot become elements."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# elements that have no content and no end tag; those of SVG are self-closing
VOID = {"br", "circle", "line", "link", "meta", "path", "rect"}
_SHAPES = {"circle", "line", "path", "rect"}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # HTML forbids these
# characters that would change the direction of the surrounding text
_TURNING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is already markup, and that a page contains unchanged."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Return the text as markup that is also safe in an attribute. Text that is already markup is not changed."""
    if isinstance(text, Markup):
        return text
    shown = _TURNING.sub("\ufffd", _FORBIDDEN.sub("\ufffd", str(text)))
    return Markup(html.escape(shown))


def breakable(name: object) -> Markup:
    """Return a name as markup that allows a line break after each underscore."""
    return Markup(escape(name).replace("_", "_<wbr>"))


def join(parts: Iterable[object], between: object = "") -> Markup:
    """Return the joined parts."""
    return Markup(escape(between).join(map(escape, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element.

    Args: attributes: `class_` stands for class, and any other underscore for a hyphen. An attribute with the value None
        or False is omitted. An attribute with the value True is written without a value.
    """
    shown = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in VOID:
        return Markup(f"<{name}{shown}{'/' if name in _SHAPES else ''}>")
    return Markup(f"<{name}{shown}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(value)}"'

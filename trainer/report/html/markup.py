"""HTML and SVG from Python: all text that is not markup is escaped, so names and messages stay text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# elements without content and end tag, and SVG elements that close themselves
VOID = {"br", "circle", "line", "link", "meta", "path", "rect"}
_SHAPES = {"circle", "line", "path", "rect"}
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # HTML forbids these
# characters that would change the direction of the surrounding text
_TURNING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is already markup; a page contains it unchanged."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Return the text as markup, safe also inside quotes; text that is already markup is returned unchanged."""
    if isinstance(text, Markup):
        return text
    shown = _TURNING.sub("\ufffd", _FORBIDDEN.sub("\ufffd", str(text)))
    return Markup(html.escape(shown))


def breakable(name: object) -> Markup:
    """Return a name with a possible line break after each underscore."""
    return Markup(escape(name).replace("_", "_<wbr>"))


def join(parts: Iterable[object], between: object = "") -> Markup:
    """Return the parts one after the other."""
    return Markup(escape(between).join(map(escape, parts)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element.

    Args: attributes: `class_` stands for class, and an underscore for a hyphen. None and False omit the attribute, and
        True omits its value.
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

"""Items of a list in Markdown, wrapped as the pages are."""

from __future__ import annotations

import re
import textwrap

COLUMNS = 100
_BLANK = "\1"  # replaces a blank inside code, where a line must not break


def escape(text: str) -> str:
    """The text with `<` escaped outside of code, so that no HTML begins there."""
    return text.replace("<", "&lt;")


def item(text: str) -> str:
    """The text as an item of a list, with a full stop."""
    held = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", _BLANK), text if text[-1] in ".:!?" else f"{text}.")
    lines = textwrap.wrap(
        held, COLUMNS, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_BLANK, " ")

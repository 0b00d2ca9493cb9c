"""Items of a list in Markdown, wrapped as the pages are."""

from __future__ import annotations

import re
import textwrap

COLUMNS = 100
_BLANK = "\1"  # stands for a blank inside of code, where a line does not break


def escape(text: str) -> str:
    """A text in which HTML begins nowhere outside of code."""
    return text.replace("<", "&lt;")


def item(text: str) -> str:
    """The text as one item of a list, with a full stop."""
    held = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", _BLANK), text if text[-1] in ".:!?" else f"{text}.")
    lines = textwrap.wrap(
        held, COLUMNS, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(_BLANK, " ")

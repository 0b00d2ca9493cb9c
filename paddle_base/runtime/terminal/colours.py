"""Colours, and whether a stream is a terminal.

NO_COLOR in the environment, with any value, disables colours (no-color.org). TERM=dumb also disables the bar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TextIO

RED, GREEN, YELLOW, BOLD = "31", "32", "33", "1"  # parameters of SGR, ECMA-48 8.3.117
# the words for a state, by colour; "0 failed" is not red, because nothing has failed
STATES = re.compile(
    r"(?P<red>(?<!\b0 )\b(?:failed|Failed|killed|given up|discarded for this pass|Error|OOMKilled)\b)"
    r"|(?P<yellow>\b(?:Pending|Terminating|Unknown|restarting|has not written|was killed|waits for)\b)"
    r"|(?P<green>\b(?:Running|Succeeded|finished|training|done, all)\b)"
    r"|(?P<bold>^ID +POD.*$|^[a-z][a-z ,]+:$)"
)
STYLES = {"red": RED, "yellow": YELLOW, "green": GREEN, "bold": BOLD}


def is_terminal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that can rewrite its lines."""
    try:
        return stream is not None and stream.isatty() and environ.get("TERM", "dumb") != "dumb"
    except ValueError:  # the stream is closed
        return False


def has_colour(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether the stream shows colours and the environment does not disable them."""
    return not environ.get("NO_COLOR") and is_terminal(stream, environ)


def paint(text: str, style: str) -> str:
    """Return a text in a colour; the line breaks at its end are not coloured."""
    body = text.rstrip("\n")
    return f"\x1b[{style}m{body}\x1b[0m{text[len(body) :]}"


def paint_states(line: str) -> str:
    """Return a line about a job with its states in colour."""
    return STATES.sub(lambda found: paint(found[0], STYLES[found.lastgroup or "bold"]), line)

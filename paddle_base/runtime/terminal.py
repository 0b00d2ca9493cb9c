"""Colours and a progress bar on a terminal. A pipe, a file and the log of a pod get plain lines.

NO_COLOR in the environment, with any value, disables colours (no-color.org). TERM=dumb also disables the bar.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
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
COLUMNS = 24  # characters of a bar between its brackets
MOST_COLUMNS = 400  # maximum width in characters; a wider terminal is used only up to this width


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


def draw_bar(fraction: float, columns: int = COLUMNS) -> str:
    """Return a bar such as `[######------]`. A fraction below 0 counts as 0, and a fraction above 1 counts as 1."""
    full = int(min(max(fraction, 0.0), 1.0) * columns)
    return f"[{'#' * full}{'-' * (columns - full)}]"


def count_columns(stream: TextIO) -> int:
    """Return the width of a terminal in characters, or 80 if it is unknown."""
    try:
        return min(os.get_terminal_size(stream.fileno()).columns or 80, MOST_COLUMNS)
    except (OSError, ValueError):
        return 80


def format_lines(lines: Sequence[str], fraction: float | None, stream: TextIO, environ: Mapping[str, str]) -> str:
    """Return lines about a job for a stream. On a terminal, the lines have colours, and a bar is the last line.

    Args: fraction: the finished fraction of the job, or None if it is not known.
    """
    shown = list(lines)
    if fraction is not None and is_terminal(stream, environ):
        shown.append(f"{draw_bar(fraction)} {min(max(fraction, 0.0), 1.0):.0%} of the job")
    if has_colour(stream, environ):
        shown = [paint_states(line) for line in shown]
    return "".join(f"{line}\n" for line in shown)

"""Formats a progress bar, and lines about a job for a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from paddle_base.runtime.terminal.colours import has_colour, is_terminal, paint_states

COLUMNS = 24  # characters of a bar between its brackets
MOST_COLUMNS = 400  # maximum width in characters; a wider terminal is used only up to this width


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

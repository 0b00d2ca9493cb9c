"""The flag that a user may have meant, for the error messages of argparse."""

from __future__ import annotations

import difflib
import re


def suggest_flag(message: str, manual: str) -> str:
    """Return "; did you mean --flag?" if argparse reports a flag that resembles a flag of the manual, else ""."""
    unknown = re.search(r"unrecognized arguments: (-[^\s=]+)", message)
    close = difflib.get_close_matches(unknown[1], re.findall(r"--[a-z][\w-]*", manual), 1) if unknown else []
    return f"; did you mean {close[0]}?" if close else ""

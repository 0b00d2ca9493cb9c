"""Return numbers, times and sizes as the texts that the report shows."""

from __future__ import annotations

import math
import time
from typing import Any

NONE = "–"  # the text of a missing value
LARGEST = 2**53  # a count that is at least as large is not valid


def number(value: Any) -> float | None:
    """Return the value as a float if it is a finite number, otherwise None. A file may contain any value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any, default: int = 0) -> int:
    """Return a finite number as an int, or 0 if the number is too large. For any other value return the default."""
    found = number(value)
    return default if found is None else clamp(int(found))


def clamp(value: int) -> int:
    """Return a value, or 0 if its absolute value is at least LARGEST."""
    return value if -LARGEST < value < LARGEST else 0


def general(value: Any) -> str:
    """Return a number in the format `%g` of train.log."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:g}"
    found = number(value)
    return NONE if found is None else f"{found:g}"


def count(value: Any) -> str:
    """Return a count with commas between thousands."""
    found = number(value)
    return NONE if found is None else f"{round(found):,}"


def rate(value: Any) -> str:
    """Return samples per second; a number below 100 has three digits, and a larger one is a whole number."""
    found = number(value)
    if found is None:
        return NONE
    return f"{found:.3g}" if abs(found) < 100 else f"{round(found):,}"


def percent(share: Any) -> str:
    """Return a fraction in percent, rounded down. Only the fraction 1 gives 100 %."""
    found = number(share)
    return NONE if found is None else f"{math.floor(found * 100 + 1e-9):d} %"


def seconds(value: Any) -> str:
    """Return a duration: 0.12 s, 34.5 s, 2 min 05 s, 3 h 07 min, 2 d 04 h."""
    found = number(value)
    if found is None:
        return NONE
    if abs(found) < 59.95:
        return f"{found:.2f} s" if abs(found) < 9.995 else f"{found:.1f} s"
    for unit, below, short, shorter in ((60, 3600, "min", "s"), (3600, 86400, "h", "min"), (86400, math.inf, "d", "h")):
        part = {"s": 1, "min": 60, "h": 3600}[shorter]
        rounded = round(found / part) * part
        if rounded < below:
            first, rest = divmod(rounded, unit)
            return f"{first:.0f} {short} {rest / part:02.0f} {shorter}"
    return NONE


def moment(epoch: Any) -> str:
    """Return a time in the local time zone, with its offset from UTC."""
    found = number(epoch)
    try:
        return NONE if found is None else time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(found))
    except (OverflowError, ValueError, OSError):
        return NONE


def size(bytes_: Any) -> str:
    """Return a size of bytes: 512 B, 1.5 KiB, 2.0 MiB."""
    found = number(bytes_)
    if found is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(found) < 1024:
            return f"{found:.0f} B" if unit == "B" else f"{found:.1f} {unit}"
        found /= 1024
    return f"{found:.1f} TiB"


def shorten(text: object, limit: int) -> str:
    """Return a text, cut to at most `limit` characters; an ellipsis shows that the text was cut."""
    shown = str(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"

"""Files in which a program records its state once a second, and the functions that read them.

Such a record is an object with the fields `written` (the time in seconds since 1970) and `end` (None until the program
has ended).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_base.runtime.durable_files import replace_file

INTERVAL_S = 1.0  # seconds between two records
LATE_S = 5.0  # age of a record in seconds from which its program counts as killed, frozen, or unable to write
MOST_ROWS = 5  # maximum rows of a table of `paddle status`; the output must fit on one screen
WATCH_S, LOOK_S = 3.0, 0.1  # seconds for which an old record is observed, and seconds between two reads of the record


def write_record(path: Path, text: str) -> None:
    """Replace the file of a record; make its directory again if the directory was removed.

    Raises: OSError.
    """
    try:
        replace_file(path, text)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)


def read_settled(
    read: Callable[[], dict[str, Any]], clock_s: Callable[[], float], late_s: float, watch_s: float
) -> tuple[dict[str, Any], float, bool]:
    """Return the newest record, its age in seconds, and whether the program should have written a newer record by now.

    The program's clock may differ from the clock of this machine. A record that seems to be old or from the future is
    therefore observed for some seconds. If the record changes, the program is alive.
    Args: read: function that returns the current record.  late_s: age from which a record seems to be old.  watch_s:
        seconds of the observation; longer than the time between two records.
    Raises: the errors of `read`.
    """
    record = read()
    age = clock_s() - record["written"]
    if record["end"] is not None or -INTERVAL_S <= age <= late_s:
        return record, max(0.0, age), False
    until = time.monotonic() + watch_s
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        found = read()
        if found["written"] != record["written"]:
            return found, 0.0, False
    return record, max(age, watch_s), True


def describe_duration(seconds: float) -> str:
    """Return a duration in words for users."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def tabulate(title: str, rows: Sequence[str], where: str, count: int | None = None) -> Iterator[str]:
    """Yield a table: its title, its first MOST_ROWS rows, and the place of the other rows. Yield nothing without rows.

    Args: where: the file that has all rows.  count: number of all rows, if `rows` contains only some of them.
    """
    total = len(rows) if count is None else count
    if not total:
        return
    yield f"{title}:"
    shown = rows[:MOST_ROWS]
    yield from (f"  {row}" for row in shown)
    if total > len(shown):
        yield f"  and {total - len(shown)} more: see {where}"


def list_names(names: Sequence[str], most: int = 10) -> str:
    """Return the first `most` names, and the number of the others, as text."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def clock(seconds: float) -> str:
    """Return a time as text, in the time zone of this machine."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "at no time"

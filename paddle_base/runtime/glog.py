"""Log lines in the format of glog: `I1120 10:59:13.169946  1191 TrainerInternal.cpp:165] message`.

A line that the legacy program also printed shows the source file and line number of the legacy program (`at=`), because
users search for this text. Any other line shows the file and line number of the code that logs it. Each line is one
unbuffered write to stderr.

On a terminal, warnings and errors are coloured, and a changing line may stay at the bottom
(paddle_base/runtime/terminal/).

With `to_json` each line is also written as a JSON object to a separate file, for log collectors.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from paddle_base.runtime import terminal
from paddle_base.runtime.errors import VolumeError

_lock = threading.RLock()  # reentrant, because a signal handler may log while its thread is writing a line
# a fork holds the lock; otherwise the new process could wait for ever for a thread that it does not have
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
# the file of the JSON log; unbuffered, because a buffer refuses a signal handler's line during a write
_json: FileIO | None = None
_said_in_json: dict[str, Any] = {}  # the fields of every JSON line except the message
_bottom_line = ""  # the text that stays at the bottom of a terminal
_COLOURS = {"W": terminal.YELLOW, "E": terminal.RED, "F": terminal.RED}
_least = 0  # severity below which lines are dropped: the position of the line's letter in SEVERITIES
SEVERITIES = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}


def info(message: str, at: str | None = None, record: Mapping[str, Any] | None = None) -> None:
    """Write an `I` line. Args: record: the numbers in the message, as fields for the JSON line."""
    _write("I", message, at, record)


def warning(message: str, at: str | None = None) -> None:
    """Write a `W` line."""
    _write("W", message, at)


def error(message: str, at: str | None = None) -> None:
    """Write an `E` line."""
    _write("E", message, at)


def fatal(message: str, at: str | None = None) -> None:
    """Write an `F` line.

    Unlike the legacy's LOG(FATAL) this function does not end the process; the caller returns an exit status.
    """
    _write("F", message, at)


def set_least_severity(level: int) -> None:
    """Drop all further lines below a severity: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL, as --minloglevel of glog."""
    global _least
    _least = level


def to_json(path: str, *, role: str, number: int | str | None, attempt: str) -> None:
    """Write every further line also to a file, as {time, severity, role, id, attempt, pass, batch, at, message}.

    Args: role: kind of this program, e.g. trainer or pserver.  number: identifies the program among those of its kind,
        e.g. a trainer's id or a pserver's address:port; None: `identify` sets the number later.  attempt: the attempt's
        name, or "".
    Raises: VolumeError: the file cannot be written.
    """
    global _json
    try:
        file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # it stays open until the process ends
    except OSError as error:
        raise VolumeError(f"--log_json={path}: cannot be written: {error.strerror}") from error
    with _lock:
        _json = file
        _said_in_json.update(role=role, id=number, attempt=attempt)
        _said_in_json.update({"pass": None, "batch": None})


def identify(number: int) -> None:
    """Set the number of this trainer or server, which it receives after its start, in all further JSON lines."""
    _said_in_json["id"] = number


def bind(pass_number: int, batch: int) -> None:
    """Set the present pass and batch in all further JSON lines."""
    _said_in_json["pass"], _said_in_json["batch"] = pass_number, batch


def write(text: str) -> None:
    """Write text to stderr unchanged.

    A failed write must not end the program: stderr may be closed, on a full volume, or a pipe without a reader.
    """
    if sys.stderr is None:  # stderr was closed before the process started
        return
    with _lock:
        try:
            sys.stderr.write(f"\r\x1b[K{text}{_draw_bottom()}" if _bottom_line else text)
            sys.stderr.flush()
        except (OSError, ValueError, RuntimeError):  # RuntimeError: a signal handler writes while a write is running
            pass


def set_bottom_line(text: str) -> None:
    """Show a text below all further lines; "" removes the text. stderr must be a terminal."""
    global _bottom_line
    with _lock:
        if text or _bottom_line:
            _bottom_line = text
            write("" if text else "\r\x1b[K")


def _draw_bottom() -> str:
    """Return the bottom line, cut to one line. The cursor is then at its beginning, where later text replaces it."""
    return f"{_bottom_line[: terminal.count_columns(sys.stderr) - 1]}\r"


def clean(text: object, limit: int = 500) -> str:
    """Return a peer's text as one printable line of at most about `limit` characters.

    A line break could imitate a log line of this program, and the reader's terminal would execute an escape sequence.
    """
    said = str(text)
    left = len(said) - limit
    if left > 0:
        said = f"{said[:limit]}... ({left} characters more)"
    return said if said.isprintable() else "".join(map(_escape, said))


def format_line(severity: str, message: str, at: str, now: float, thread: int) -> str:
    """Return the line with its newline; `now` is seconds since the epoch, shown in local time.

    A message may have several lines; other unprintable characters are escaped.
    """
    if not message.isprintable():
        message = "".join(each if each in "\n\t" else _escape(each) for each in message)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    return f"{severity}{stamp}.{int(now % 1 * 1e6):06d} {thread:5d} {at}] {message}\n"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _write(severity: str, message: str, at: str | None, record: Mapping[str, Any] | None = None) -> None:
    if _least and list(SEVERITIES).index(severity) < _least:
        return
    if at is None:
        frame = sys._getframe(2)
        at = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    now = time.time()
    line = format_line(severity, message, at, now, threading.get_native_id())
    if severity in _COLOURS and terminal.has_colour(sys.stderr, os.environ):
        line = terminal.paint(line, _COLOURS[severity])
    write(line)
    if _json is not None:
        said = {"time": round(now, 6), "severity": SEVERITIES[severity], **_said_in_json, "at": at, "message": message}
        line = json.dumps(said if record is None else {**said, "record": record})
        with _lock, contextlib.suppress(OSError, ValueError):
            _json.write(f"{line}\n".encode())

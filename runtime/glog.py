"""Log lines as glog wrote them: `I1120 10:59:13.169946  1191 TrainerInternal.cpp:165] message`.

Lines that the legacy printed carry the legacy's file and line (`at=`), because people grep for them; our own carry
the file and line of the caller. Every line is one write to stderr, at once.

With `to_json` each line is also written as a JSON object into a file of its own, for programs that collect logs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from runtime.errors import VolumeError

_lock = threading.RLock()  # reentrant: a signal handler may log while its own thread is in the middle of a line
_json: FileIO | None = None  # where lines go as JSON, too; buffers refuse a signal handler's line in mid-line
_said_in_json: dict[str, Any] = {}  # what every JSON line says beside its message
SEVERITIES = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}


def info(message: str, at: str | None = None, record: Mapping[str, Any] | None = None) -> None:
    """Write an `I` line; `record` is what it says in numbers, for its JSON line."""
    _write("I", message, at, record)


def warning(message: str, at: str | None = None) -> None:
    """Write a `W` line."""
    _write("W", message, at)


def error(message: str, at: str | None = None) -> None:
    """Write an `E` line."""
    _write("E", message, at)


def fatal(message: str, at: str | None = None) -> None:
    """Write an `F` line; unlike the legacy's LOG(FATAL) it does not end the process, the caller returns a status."""
    _write("F", message, at)


def to_json(path: str, *, role: str, number: int | str | None, attempt: str) -> None:
    """Write every further line also to a file, as {time, severity, role, id, attempt, pass, batch, at, message}.

    Args: role: trainer or pserver.  number: a trainer's id, a pserver's address:port; None: `identify` says it later.
        attempt: the attempt's name, or "".
    Raises: VolumeError: if the file cannot be written.
    """
    global _json
    try:
        file = Path(path).open("ab", buffering=0)  # noqa: SIM115  # as long as the process
    except OSError as error:
        raise VolumeError(f"--log_json={path}: cannot be written: {error.strerror}") from error
    with _lock:
        _json = file
        _said_in_json.update(role=role, id=number, attempt=attempt)
        _said_in_json.update({"pass": None, "batch": None})


def identify(number: int) -> None:
    """Say in every further JSON line which trainer or server this is, as it has its number from others."""
    _said_in_json["id"] = number


def bind(pass_number: int, batch: int) -> None:
    """Say in every further JSON line where training is."""
    _said_in_json["pass"], _said_in_json["batch"] = pass_number, batch


def write(text: str) -> None:
    """Write text to stderr as it is.

    A log that cannot be written (closed, full volume, reader gone) must not end the work it reports on.
    """
    if sys.stderr is None:  # closed before the process began
        return
    with _lock:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, RuntimeError):  # RuntimeError: a signal handler's line in the middle of another
            pass  # one, which a buffer refuses


def clean(text: object, limit: int = 500) -> str:
    """Return what a peer said as one printable line of at most about `limit` characters.

    A line break in it could pass for a line of ours, and an escape sequence would be obeyed by the reader's terminal.
    """
    said = str(text)
    left = len(said) - limit
    if left > 0:
        said = f"{said[:limit]}... ({left} characters more)"
    return said if said.isprintable() else "".join(map(_escape, said))


def format_line(severity: str, message: str, at: str, now: float, thread: int) -> str:
    """Return the line with its newline; `now` is seconds since the epoch, shown in local time.

    A message of ours may have several lines; other characters that are not printable are shown as escapes.
    """
    if not message.isprintable():
        message = "".join(each if each in "\n\t" else _escape(each) for each in message)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    return f"{severity}{stamp}.{int(now % 1 * 1e6):06d} {thread:5d} {at}] {message}\n"


def _escape(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _write(severity: str, message: str, at: str | None, record: Mapping[str, Any] | None = None) -> None:
    if at is None:
        frame = sys._getframe(2)
        at = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
    now = time.time()
    write(format_line(severity, message, at, now, threading.get_native_id()))
    if _json is not None:
        said = {"time": round(now, 6), "severity": SEVERITIES[severity], **_said_in_json, "at": at, "message": message}
        line = json.dumps(said if record is None else {**said, "record": record})
        with _lock, contextlib.suppress(OSError, ValueError):
            _json.write(f"{line}\n".encode())

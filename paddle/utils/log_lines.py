"""Reads the lines of a log, for the programs that look for numbers in logs."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

from paddle_base.runtime.errors import DataError, MissingInputError

MOST_LOG_BYTES = 256 << 20


def read_log(path: Path | None) -> list[str]:
    """Return the lines of a log without line ends; bytes that are not UTF-8 are replaced.

    Only the bytes of a line end divide lines; `str.splitlines` would also divide at other characters, such as U+0085.

    Args: path: a file or a pipe; None: stdin.
    Raises: MissingInputError: the log cannot be read.  DataError: it has more than MOST_LOG_BYTES.
    """
    try:
        if path is None:
            data = sys.stdin.buffer.read(MOST_LOG_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MOST_LOG_BYTES + 1)
    except OSError as error:
        raise MissingInputError(f"the log {path or 'on stdin'} cannot be read: {error.strerror}") from error
    if len(data) > MOST_LOG_BYTES:
        raise DataError(
            f"the log {path or 'on stdin'} has more than {MOST_LOG_BYTES >> 20} MiB; select its lines with grep first"
        )
    return [line.decode(errors="replace") for line in data.removeprefix(codecs.BOM_UTF8).splitlines()]

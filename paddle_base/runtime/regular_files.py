"""Opens files of other programs, if the files are regular."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, without blocking on a pipe.

    Raises: OSError: EISDIR for a directory, EINVAL for a pipe, socket or device.
    """
    return open(path, "rb", opener=_open_handle)  # not os.fdopen: messages take the path from the file's `name`


def _open_handle(name: str, flags: int) -> int:
    path = Path(name)
    # check the mode before opening, because opening may activate a device
    require_regular(path, path.stat().st_mode)
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        require_regular(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def require_regular(path: Path, mode: int) -> None:
    """Raise an error if the mode does not belong to a regular file.

    Raises: OSError: EISDIR for a directory, EINVAL for a pipe, socket or device.
    """
    if not stat.S_ISREG(mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "Is a directory" if code == errno.EISDIR else "Is no regular file", str(path))

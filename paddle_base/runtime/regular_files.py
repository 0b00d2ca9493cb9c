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
    # check the mode before opening, because opening may activate a device
    require_regular(path, path.stat().st_mode)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        require_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path, mode: int) -> None:
    """Raise an error if the mode does not belong to a regular file.

    Raises: OSError: EISDIR for a directory, EINVAL for a pipe, socket or device.
    """
    if not stat.S_ISREG(mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "Is a directory" if code == errno.EISDIR else "Is no regular file", str(path))

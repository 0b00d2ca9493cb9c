"""Opens files that others wrote: regular ones only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a file to be read, without waiting for the other end of a pipe.

    Raises: OSError: EISDIR of a directory, EINVAL of a pipe, a socket or a device.
    """
    require_regular(path, path.stat().st_mode)  # before it is opened, which may wake a device
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        require_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path, mode: int) -> None:
    """Raise for what is no regular file, by its mode.

    Raises: OSError: EISDIR of a directory, EINVAL of a pipe, a socket or a device.
    """
    if not stat.S_ISREG(mode):
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "Is a directory" if code == errno.EISDIR else "Is no regular file", str(path))

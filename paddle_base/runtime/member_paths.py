"""The path below a directory for a name that an archive, a bucket or another program gives."""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

DEPTH = 64  # maximum number of nested directories
NAME_BYTES = 255  # maximum length of a path component on any file system
# errors of the file system if a member cannot be created, for example because its directory is a file
IMPOSSIBLE = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)


def place_below(folder: Path, name: str) -> Path:
    """Return the path of a name below a directory.

    Raises: ValueError: the name leads out of the directory, or is too long; the error's text says which.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise ValueError("lies outside the folder")
    if len(parts) > DEPTH or any(len(os.fsencode(part)) > NAME_BYTES for part in parts):
        raise ValueError("has too long a name")
    return folder.joinpath(*parts)

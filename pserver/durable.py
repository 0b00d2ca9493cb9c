"""Names that outlast a power cut: a file's own sync says nothing of the directory it is in."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlast a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot; their renames are durable anyhow
            raise
    finally:
        os.close(handle)

"""Excludes the output of prepare from its input, because a second run must not read the shards of the first run."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from paddle_cluster.prepare.log import say
from paddle_cluster.prepare.values import MARKER

NAMED = 5  # maximum number of directories that the log line names


class Outputs:
    """The directories below the input that prepare has created: OUT_DIR, and each directory with a prepared.json.

    Args: out_dir: the OUT_DIR of this run, or None. OUT_DIR need not exist.
    """

    def __init__(self, out_dir: Path | None) -> None:
        self._found: list[str] = []
        try:
            self._own = out_dir.stat() if out_dir is not None else None
        except OSError:
            self._own = None

    def take(self, directory: int, name: PurePosixPath) -> bool:
        """Return whether prepare created a directory; if so, record the name of the directory.

        Args: directory: descriptor of the directory.
        """
        is_own = self._own is not None and os.path.samestat(os.fstat(directory), self._own)
        if not is_own and not _has_marker(directory):
            return False
        self._found.append(f"{name} (OUT_DIR)" if is_own else f"{name} (it has a {MARKER})")
        return True

    def tell(self, path: Path) -> None:
        """Log in one line which directories below `path` were skipped; log nothing if no directory was skipped."""
        if self._found:
            found = sorted(self._found)
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            say(f"{path}: directories that prepare made are not read: {', '.join(found[:NAMED])}{more}")


def _has_marker(directory: int) -> bool:
    try:
        os.stat(MARKER, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True

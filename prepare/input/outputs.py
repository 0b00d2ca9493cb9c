"""Leaves out of the input what prepare made: a second run would take the shards of the first for data."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from prepare.log import say
from prepare.settings import MARKER

NAMED = 5  # directories in the message


class Outputs:
    """The directories that prepare made, as a walk through the input finds them: OUT_DIR, and any with its marker.

    Args: out_dir: of this run, if it is known; it need not exist.
    """

    def __init__(self, out_dir: Path | None) -> None:
        self._found: list[str] = []
        try:
            self._own = out_dir.stat() if out_dir is not None else None
        except OSError:
            self._own = None

    def take(self, directory: int, name: PurePosixPath) -> bool:
        """Tell whether prepare made a directory, and note its name if so.

        Args: directory: its descriptor.
        """
        is_own = self._own is not None and os.path.samestat(os.fstat(directory), self._own)
        if not is_own and not _has_marker(directory):
            return False
        self._found.append(f"{name} (OUT_DIR)" if is_own else f"{name} (it has a {MARKER})")
        return True

    def tell(self, path: Path) -> None:
        """Say in one line what was left out of the folder `path`, if anything was."""
        if self._found:
            found = sorted(self._found)
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            say(f"{path}: not read, because prepare made it: {', '.join(found[:NAMED])}{more}")


def _has_marker(directory: int) -> bool:
    try:
        os.stat(MARKER, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True

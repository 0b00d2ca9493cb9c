"""Temporary directories that are removed after their process has ended, even if the process was killed.

Each directory has a marker file that the process keeps locked (flock); the kernel releases the lock when the process
ends. The next localcluster removes only directories with a complete and unlocked marker, which belonged to killed
processes. A process id or a directory's name would prove nothing, because a process id can be reused and another
program can use the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "localcluster-"
MARKER = ".localcluster"
CONTENT = b"a temporary directory of localcluster; it goes when nobody holds a lock on this file\n"
_NAME = re.compile(rf"{PREFIX}(logs-|ca-)?[a-z0-9_]{{8}}")  # the form of tempfile's names
_MOST_LEFT = 1000  # maximum number of directories to check; the next start checks the others


class Scratch:
    """A new temporary directory that belongs to this process.

    Args: prefix: the beginning of the directory's name.
    Raises: OSError: if the directory cannot be created.
    """

    def __init__(self, prefix: str = PREFIX) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        new = self.path / f"{MARKER}.new"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._lock: int | None = os.open(new, flags, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.write(self._lock, CONTENT)
        new.rename(self.path / MARKER)  # after the lock, so that a marker with its final name is always locked

    def remove(self) -> None:
        """Remove the directory with its content; a second call has no effect."""
        if self._lock is not None:
            _remove(self.path)
            self._give_back()

    def keep(self) -> None:
        """Keep the directory permanently."""
        if self._lock is not None:
            (self.path / MARKER).unlink(missing_ok=True)
            self._give_back()

    def _give_back(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep() -> list[Path]:
    """Remove the temporary directories of this user's killed processes, and return their paths."""
    removed = []
    place = Path(tempfile.gettempdir())
    try:
        with os.scandir(place) as entries:
            found = [entry.name for entry in entries if _NAME.fullmatch(entry.name)]
    except OSError:
        return []
    for name in sorted(found)[:_MOST_LEFT]:
        with contextlib.suppress(OSError):
            if _remove_left(place / name):
                removed.append(place / name)
    return removed


def _remove_left(path: Path) -> bool:
    """Remove a directory if it certainly belongs to an ended localcluster of this user; return whether it was removed.

    Raises: OSError: if the directory is not of an ended localcluster, or belongs to another user.
    """
    # through no link, because every user may put one into the directory for temporary files
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(directory)
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            return False
        marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        try:
            of_marker = os.fstat(marker)
            is_file = stat.S_ISREG(of_marker.st_mode) and of_marker.st_uid == os.geteuid()
            if not is_file or os.read(marker, len(CONTENT) + 1) != CONTENT or _is_mounted_on(path):
                return False
            # this lock is held until the removal, because two processes can sweep at the same time
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now = os.lstat(path)
            if (now.st_dev, now.st_ino) != (facts.st_dev, facts.st_ino):
                return False
            _remove(path)
        finally:
            os.close(marker)
    finally:
        os.close(directory)
    return not path.exists()


def _remove(path: Path) -> None:
    """Remove a directory. The marker is removed last, so a later call can continue an incomplete removal."""
    with contextlib.suppress(OSError):
        for inside in list(path.iterdir()):
            if inside.is_dir() and not inside.is_symlink():
                # rmtree never follows a link, even if another process creates the link during the removal
                shutil.rmtree(inside, ignore_errors=True)
            elif inside.name != MARKER:
                inside.unlink()
        (path / MARKER).unlink(missing_ok=True)
        path.rmdir()


def _is_mounted_on(path: Path) -> bool:
    """Return whether a file system is mounted inside a directory; such a mount must not be removed."""
    real = os.path.realpath(path)
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return any(point == real or point.startswith(f"{real}/") for point in points)

"""Writing that outlasts a power cut: files and directories that are complete or not there, by sync and rename."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from runtime import glog
from runtime.errors import VolumeError
from runtime.regular_files import open_regular, require_regular

STALE_ATTEMPTS = 3  # a directory handle of NFS may go stale when the server restarts; the next attempt opens it anew

# of a name by which no file can be read, however well the volume is: nothing is there, a directory, a pipe, a loop
NO_SUCH_FILE = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL,
})  # fmt: skip
# what a user can do about a directory that takes no file
REMEDY = "make room, mount it read-write, or give it to the uid that writes"
MOST_TEXT_BYTES = 64 << 20  # bytes of a JSON file that tells of a job

Content = Iterable[bytes | memoryview]  # of a file, in parts: large arrays are written from where they are


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlast a power cut: a file's own sync says nothing of the directory it is in."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot; their renames are durable anyhow
            raise
    finally:
        os.close(handle)


def write_durably(directory: Path, write: Callable[[], Any]) -> None:
    """Write by a function that can be repeated.

    Raises: VolumeError: if the volume is full, read-only or not writable.
    """
    for attempt in range(1, STALE_ATTEMPTS + 1):
        try:
            write()
        except OSError as error:
            if error.errno == errno.ESTALE and attempt < STALE_ATTEMPTS:
                continue
            raise VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename}); {REMEDY}") from error
        return


def warn_if_removed(save_dir: Path) -> None:
    """Warn if the directory of all saves has been removed since training began.

    The next save makes it again, because what is trained from now on is worth saving.
    """
    if not save_dir.is_dir():
        glog.warning(f"{save_dir} has been removed since training began: it is made again, what was in it is lost")


def write_file(path: Path, content: Content) -> int:
    """Write and sync a file, and return its bytes."""
    try:
        with path.open("wb") as file:
            for part in content:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        error.filename = error.filename or str(path)  # a write that fails does not say where
        raise


def read_text_file(path: Path, most: int = MOST_TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file that tells of a job.

    Raises: OSError: it cannot be read, is no file, or has more than `most` bytes (EFBIG).
    """
    with open_regular(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return found


def write_mark(path: Path, content: Content) -> None:
    """Write and sync a small file that says by its name that something is complete: it must never be there by half.

    Raises: OSError.
    """
    staging = staging_of(path)
    try:
        write_file(staging, content)
        staging.replace(path)
    except BaseException:
        remove_if_possible(staging)
        raise
    sync_directory(path.parent)


def replace_file(path: Path, text: str) -> None:
    """Replace a small file so that readers see the old or the new one; it need not outlast a power cut.

    Raises: OSError.
    """
    staging = path.with_name(f".{path.name}.writing")
    staging.write_text(text, encoding="utf-8")
    staging.replace(path)


def find_output(path: Path) -> Path:
    """Return the path that a rename may replace in order to write the file that a user named.

    A rename replaces whatever has the name. A link stays, and what it leads to is written; a device or a pipe is no
    place for a file that is complete or not there.
    Raises: OSError: EISDIR of a directory, EINVAL of a pipe, a socket or a device, ELOOP of links in a circle.
    """
    with contextlib.suppress(FileNotFoundError):
        require_regular(path, path.stat().st_mode)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def staging_of(directory: Path) -> Path:
    """Return where a directory is written before it gets its name."""
    return directory.with_name(f".{directory.name}.writing")


def old_of(directory: Path) -> Path:
    """Return where a directory goes that another one replaces."""
    return directory.with_name(f".{directory.name}.old")


def replace_directory(staging: Path, directory: Path) -> Path:
    """Rename a directory into its place; an old one there is moved away first, since a rename needs an empty one.

    Returns: where the old one is now, if there was one.
    """
    old = old_of(directory)
    remove_if_possible(old)
    try:
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        staging.rename(directory)
    except BaseException:
        if old.is_dir() and not directory.exists():
            old.rename(directory)
        raise
    return old


def remove_if_possible(path: Path) -> None:
    """Remove a directory with all that is in it, or a file; of a link the link, and not what it leads to."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)

"""Writes files durably by sync and rename: after a power failure, a file or directory is either complete or absent."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from paddle_base.runtime import glog
from paddle_base.runtime.errors import VolumeError
from paddle_base.runtime.regular_files import open_regular, require_regular

STALE_ATTEMPTS = 10  # maximum number of attempts of a step that fails with ESTALE

# errors of a working volume: the path does not exist, or is a directory, a pipe or a loop of links
NO_SUCH_FILE = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EINVAL,
})  # fmt: skip
# what a user can do if no file can be written into a directory
REMEDY = "make room, mount the volume read-write, or give the directory to the uid that writes"
_OUTPUT_REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.ENOENT: "make its directory first",
    errno.EROFS: "mount the volume read-write, or name another file",
    errno.EISDIR: "name a file in this directory",
}
MOST_TEXT_BYTES = 64 << 20  # maximum bytes of a JSON file about a job

Result = TypeVar("Result")
# the content of a file, in parts, which avoids copies of large arrays
Content = Iterable[bytes | memoryview]


def saving_error(directory: Path | str, error: OSError) -> VolumeError:
    """Return the error of a directory into which nothing can be written."""
    remedy = REMEDY
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        remedy = "a file has this name, or that of a directory above it: remove the file, or name another directory"
    return VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename}); {remedy}")


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable; syncing a file does not sync the directory of the file."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # some network file systems do not support fsync of a directory; their renames are always durable
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def retry_stale(step: Callable[[], Result]) -> Result:
    """Return the result of a step, which is repeated after ESTALE.

    A handle of NFS becomes stale when another client renames a file or directory, or when the server restarts. The next
    attempt opens it again.
    Raises: OSError: the error of the step.
    """
    for _ in range(STALE_ATTEMPTS - 1):
        try:
            return step()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return step()


def write_durably(directory: Path, write: Callable[[], Any]) -> None:
    """Call a function that writes, and repeat the call if a handle is stale.

    Raises: VolumeError: the volume is full, read-only or not writable.
    """
    try:
        retry_stale(write)
    except OSError as error:
        raise saving_error(directory, error) from error


def warn_if_removed(save_dir: Path) -> None:
    """Warn if the directory of all saves has been removed since training began.

    The next save creates the directory again, because further training is worth saving.
    """
    if not save_dir.is_dir():
        glog.warning(f"{save_dir} has been removed since training began: it is created again without its content")


def write_file(path: Path, content: Content) -> int:
    """Write and sync a file, and return its number of bytes."""
    try:
        with path.open("wb") as file:
            for part in content:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        error.filename = error.filename or str(path)  # the error of a failed write has no file name
        raise


def read_text_file(path: Path, most: int = MOST_TEXT_BYTES) -> bytes:
    """Return the bytes of a regular file about a job.

    Raises: OSError: the file cannot be read, is not a regular file, or has more than `most` bytes (EFBIG).
    """
    with open_regular(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return found


def tells_nothing(error: OSError) -> bool:
    """Return whether an error of reading a file about a job means that there is no such file, or no regular one.

    After any other error, such as a missing permission, the file may exist, and must not count as absent.
    """
    return error.errno in NO_SUCH_FILE or error.errno == errno.EFBIG


def write_mark(path: Path, content: Content, staging: Path | None = None) -> None:
    """Write and sync a file, which replaces an old one. The file is always complete, also after a power failure.

    Args: staging: the temporary name of the file, if two programs may write it at the same time; it must be unique.
    Raises: OSError.
    """
    staging = staging or staging_of(path)
    try:
        write_file(staging, content)
        staging.replace(path)
    except BaseException:
        remove_if_possible(staging)
        raise
    sync_directory(path.parent)


def write_directory(directory: Path, fill: Callable[[Path], None], complete: Callable[[], None] | None = None) -> None:
    """Write and sync a directory, which replaces an old one.

    Args: fill: writes and syncs the content of the new directory, and syncs its subdirectories.  complete: is called
        when the new directory has its name, and before the old directory is removed.
    Raises: OSError: the old directory stays; after an error of `complete`, it stays under the name `old_of`.
    """
    staging = staging_of(directory)
    try:
        remove_if_possible(staging)
        staging.mkdir(parents=True)
        fill(staging)
        sync_directory(staging)
        old = replace_directory(staging, directory)
        sync_directory(directory.parent)
        if complete is not None:
            complete()
    except BaseException:  # the temporary directory is removed even if a signal ends the program here
        remove_if_possible(staging)
        raise
    remove_if_possible(old)


def replace_file(path: Path, text: str) -> None:
    """Replace a small file; readers see the old or the new content. The new content may not survive a power failure.

    Raises: OSError.
    """
    staging = path.with_name(f".{path.name}.writing")
    staging.write_text(text, encoding="utf-8")
    staging.replace(path)


def find_output(path: Path) -> Path:
    """Return the path that a rename can replace to write the file that a user named.

    A rename would also replace a link, a device or a pipe of that name. For a link, this function therefore returns the
    target of the link. For a device or a pipe, this function raises an error.
    Raises: OSError: EISDIR for a directory, EINVAL for a pipe, socket or device, ELOOP for a loop of links.
    """
    with contextlib.suppress(FileNotFoundError):
        require_regular(path, path.stat().st_mode)
    return Path(os.path.realpath(path)) if path.is_symlink() else path


class OutputFile:
    """A file under a name that a user has given. It replaces an old file when it is complete, and not before.

    A pipe or a device of this name gets the content as it comes. `close` completes the file, and so does the end of a
    `with` block; after an error in the block, the old file stays.

    Args: purpose: what a message says before "cannot write", such as a flag.
    Raises: VolumeError: the volume is full, read-only or not writable, or `path` is a directory or the like.
    """

    def __init__(self, path: Path, purpose: str = "") -> None:
        self._path, self._purpose = path, purpose
        self._staging: Path | None = None
        try:
            if _is_stream(path):
                # without the flag, a pipe that nobody reads would hold this process for ever
                self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb", buffering=0)
                os.set_blocking(self._file.fileno(), True)
                return
            self._place = find_output(path)
            self._staging = self._place.with_name(f".{self._place.name}.{os.getpid()}")
            self._file = self._staging.open("wb", buffering=0)
        except OSError as error:
            raise self._describe(error) from error

    def write(self, content: bytes | memoryview) -> None:
        """Append to the new file. Raises: VolumeError."""
        rest = memoryview(content).cast("B")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise self._describe(error) from error

    def __enter__(self) -> OutputFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    def close(self) -> None:
        """Complete the file, and replace an old one. Raises: VolumeError: the old file stays."""
        try:
            if self._staging is not None:
                os.fsync(self._file.fileno())
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(self._file.fileno(), stat.S_IMODE(self._place.stat().st_mode))
                self._staging.replace(self._place)
        except OSError as error:
            raise self._describe(error) from error
        finally:
            self._end()

    def _end(self) -> None:
        self._file.close()
        if self._staging is not None:
            with contextlib.suppress(OSError):
                self._staging.unlink(missing_ok=True)

    def _describe(self, error: OSError) -> VolumeError:
        begin = f"{self._purpose}: cannot write" if self._purpose else "cannot write"
        remedy = _OUTPUT_REMEDIES.get(error.errno or 0, "name a file that this user may write")
        return VolumeError(f"{begin} {self._path}: {error.strerror}; {remedy}")


def write_whole_file(path: Path, parts: Content, purpose: str = "") -> None:
    """Write a file under a name that a user has given.

    Raises: VolumeError: see `OutputFile`.
    """
    with OutputFile(path, purpose) as file:
        for part in parts:
            file.write(part)


def _is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a device, such as /dev/stdout, which takes content but cannot be replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def staging_of(directory: Path) -> Path:
    """Return the temporary path under which a directory is written before it is renamed."""
    return directory.with_name(f".{directory.name}.writing")


def old_of(directory: Path) -> Path:
    """Return the path to which an old directory is moved when a new directory replaces it."""
    return directory.with_name(f".{directory.name}.old")


def replace_directory(staging: Path, directory: Path) -> Path:
    """Move an old directory away, and rename a directory to its final name; a rename needs an empty target.

    Returns: the path to which an old directory was moved; without an old directory, nothing exists at this path.
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
    """Remove a directory with its content, a file, or a link without its target."""
    if path.is_symlink() or path.is_file():
        with contextlib.suppress(OSError):
            path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)

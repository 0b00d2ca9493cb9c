"""The lock of a directory into which only one run may write.

The lock is a POSIX lock on a file in the directory. The text of the file names the process that holds the lock. The
kernel releases the lock when the process ends in any way, and child processes do not hold it. A file that a killed
process has left is reused. On NFS (version 4, or version 3 with lockd) the server keeps the lock, so the lock also
excludes runs on other machines. When a whole machine is lost, the server releases the lock after that machine's lease
(90 s by default), or when the machine returns. On a file system without locks a WARNING is logged.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import time
from pathlib import Path

from paddle_base.runtime import glog
from paddle_base.runtime.errors import DirectoryInUseError

MOST_HOLDER_BYTES = 300  # maximum number of bytes that are read from the lock file
_FLOCK = struct.Struct("hhqqi0q")  # struct flock of fcntl(2): l_type, l_whence, l_start, l_len, l_pid and padding
_HELD = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class DirectoryLock:
    """A lock that this process holds until `release`, or does not hold if the file system has no locks.

    Args: path: the lock file. refusal: the beginning of the error's text, such as `--save_dir=out: another run writes
        into it`. is_shared: whether other processes may also hold a shared lock.

    Raises: DirectoryInUseError: another process holds the lock.  OSError: the lock file cannot be opened, or is not a
        regular file.
    """

    def __init__(self, path: Path, refusal: str, *, is_shared: bool = False) -> None:
        self._path, self._is_shared = path, is_shared
        self._handle: int | None = None
        while self._handle is None:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EEXIST, "is not a regular file", str(path))
                if not _lock(handle, path.parent, refusal, is_shared=is_shared):
                    return
                if _is_still(handle, path):  # otherwise a run that has just ended has removed the locked file
                    self._handle, handle = handle, -1
            finally:
                if handle >= 0:
                    os.close(handle)
        began = time.strftime("%Y-%m-%d %H:%M:%S")
        with contextlib.suppress(OSError):  # a full volume; the text only helps users
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"pid {os.getpid()} on {socket.gethostname()} since {began}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock, and remove its file; further calls do nothing."""
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            if self._is_shared:  # only the last holder can get this lock, so only it removes the file
                fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.unlink()
        os.close(self._handle)
        self._handle = None


def is_abandoned(path: Path) -> bool:
    """Return whether a run has left its lock file, and no process holds the lock; False if this is unknown.

    The lock is only queried, and not taken. If this program took the lock, a run that begins now could be refused.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        is_free = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK
        return is_free and stat.S_ISREG(os.fstat(handle).st_mode)
    except OSError:
        return False
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path, refusal: str, *, is_shared: bool) -> bool:
    """Lock a file, or return False if the file system has no locks. Raises: see `DirectoryLock`."""
    try:
        fcntl.lockf(handle, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            holder = os.pread(handle, MOST_HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
            shown = glog.clean(holder) or "it has just begun"
            raise DirectoryInUseError(f"{refusal} ({shown}); wait for its end, or choose another directory") from error
        if error.errno not in _NO_LOCKS:
            raise
        glog.warning(f"the file system of {directory} has no locks: make sure that no other run writes into it")
        return False
    return True


def _is_still(handle: int, path: Path) -> bool:
    """Return whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False

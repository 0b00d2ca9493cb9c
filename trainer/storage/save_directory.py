"""The directory in which a run saves.

Only one run at a time uses the directory. If a run starts from the beginning, it moves the passes of an earlier run
away.

A run locks the directory with a POSIX lock on the file `.lock`. The text of this file names the process that holds the
lock. The kernel releases the lock when the process ends in any way. A file that a killed process has left is reused. On
NFS (version 4, or version 3 with lockd) the server keeps the lock, so the lock also excludes runs on other machines.
When a whole machine is lost, the server releases the lock after that machine's lease (90 s by default), or when the
machine returns. On a file system without locks a WARNING is logged.

A job with launchers needs no lock, because its job.json names the attempt that writes. The launcher of such a job has
already moved old output away.

The trainers of a master's job share a lock on the directory, which excludes other runs. The trainer that sends the
initial values to the parameter servers moves the passes of an earlier run away.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from runtime import glog
from runtime.durable_files import REMEDY, sync_directory
from runtime.errors import DirectoryInUseError, VolumeError
from trainer.flags import Values
from trainer.storage.model_files import prepare_save_directory

LOCK = ".lock"
MOST_HOLDER_BYTES = 300  # maximum number of bytes that are read from the lock file
_FLOCK = struct.Struct("hhqqi0q")  # struct flock of fcntl(2): l_type, l_whence, l_start, l_len, l_pid and padding
_HELD = (errno.EACCES, errno.EAGAIN)
_PASS = re.compile(r"\.?pass-[0-9].*")
_TOLD = ("records.jsonl", "progress.json", "report.html")  # files of an earlier run that move with its passes


class SaveDirectory:
    """Lock a directory for this process, and release it.

    Attributes: has_earlier: whether the directory has passes of an earlier run, which `begin` must move away.
    """

    def __init__(self, flags: Values, environ: Mapping[str, str]) -> None:
        self._is_owned = bool(environ.get("PADDLE_ATTEMPT"))
        self._is_shared = flags.is_elastic
        self._goes_on = bool(flags.start_pass > 0 or flags.resume_from or flags.init_model_path)
        self._lock: int | None = None
        self._path = Path()
        self._shown = ""  # the name of the directory in the flags
        self.has_earlier = False

    def prepare(self, directory: str, first_model: str = "") -> None:
        """Create and lock the directory. If this run does not resume from a save, look for passes of an earlier run.

        Args: first_model: the init_model_path of the config, or "".
        Raises: VolumeError: the directory cannot be created or written. DirectoryInUseError: another run writes into
            the directory.
        """
        prepare_save_directory(directory)
        if self._is_owned:
            return
        self._path, self._shown = Path(directory).absolute(), directory
        with _naming(directory):
            self._take(directory)
            self.has_earlier = not self._goes_on and not first_model and bool(find_earlier(self._path))

    def begin(self) -> None:
        """Move the passes of an earlier run away.

        The first batch calls this method. A run that fails before the first batch therefore moves nothing.

        Raises: VolumeError: the passes cannot be moved.
        """
        if not self.has_earlier:
            return
        with _naming(self._shown):
            target = move_earlier(self._path)
        self.has_earlier = False
        if target is not None:
            glog.info(
                f"the passes of an earlier run in {self._shown} have moved to {self._shown}/{target.name}; "
                f"--init_model_path={self._shown}/{target.name}/pass-NNNNN goes on from one of them"
            )

    def leave(self) -> None:
        """Release the directory."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            if self._is_shared:  # only the last trainer can get this lock, so only it removes the file
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self._path / LOCK).unlink()
        os.close(self._lock)
        self._lock = None

    def _take(self, directory: str) -> None:
        path = self._path / LOCK
        while self._lock is None:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EEXIST, "is not a regular file", str(path))
                if not _lock(handle, directory, is_shared=self._is_shared):
                    return
                if _is_still(handle, path):  # otherwise a run that has just ended has removed the locked file
                    self._lock, handle = handle, -1
            finally:
                if handle >= 0:
                    os.close(handle)
        began = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"pid {os.getpid()} on {socket.gethostname()} since {began}\n".encode(), 0)


@contextlib.contextmanager
def _naming(directory: str) -> Iterator[None]:
    """Turn an OSError into a VolumeError that names the directory."""
    try:
        yield
    except OSError as error:
        raise VolumeError(f"cannot save to {directory}: {error.strerror} ({error.filename}); {REMEDY}") from error


def _lock(handle: int, directory: str, *, is_shared: bool) -> bool:
    """Lock a file, or return False if the file system has no locks.

    Args: is_shared: whether other processes may also hold a shared lock.

    Raises: DirectoryInUseError: another process holds the lock.  OSError.
    """
    try:
        fcntl.lockf(handle, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            holder = os.pread(handle, MOST_HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
            raise DirectoryInUseError(
                f"--save_dir={directory}: another run writes into it ({glog.clean(holder) or 'it has just begun'}); "
                "wait for its end, or choose another directory"
            ) from error
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise
        glog.warning(f"the file system of {directory} has no locks: make sure that no other run writes into it")
        return False
    return True


def is_abandoned(directory: Path) -> bool:
    """Return whether a run has left its lock file, and no process holds the lock; False if this is unknown.

    The lock is only queried, and not taken. If this program took the lock, a run that begins now could be refused.
    """
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
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


def _is_still(handle: int, path: Path) -> bool:
    """Return whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def find_earlier(directory: Path) -> list[Path]:
    """Return the paths of an earlier run's passes, and of the directory of its checkpoints.

    Raises: OSError.
    """
    found = [path for path in directory.iterdir() if _PASS.fullmatch(path.name)]
    state = directory / "state"
    if state.is_dir() and any(_PASS.fullmatch(path.name) for path in state.iterdir()):
        found.append(state)
    return found


def move_earlier(directory: Path) -> Path | None:
    """Move the passes and checkpoints of an earlier run to the first free run-<k>/.

    Returns: the path of the new directory, or None if there is nothing to move.
    Raises: OSError.
    """
    found = find_earlier(directory)
    if not found:
        return None
    found += [path for name in _TOLD if (path := directory / name).exists()]
    target = next(free for free in (directory / f"run-{k}" for k in itertools.count(1)) if not os.path.lexists(free))
    target.mkdir()
    for path in sorted(found):
        path.rename(target / path.name)
    sync_directory(target)
    sync_directory(directory)
    return target

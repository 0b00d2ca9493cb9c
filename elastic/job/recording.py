"""Records the state of a job in the directory --output-filename; a separate thread writes while the job runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path

from elastic.job.membership_file import MOST_REASON, NAME, VERSION, read_record
from elastic.membership.history import JobHistory
from elastic.settings import ElasticSettings
from runtime import glog
from runtime.errors import DamagedError, DirectoryInUseError, VolumeError
from runtime.status_files import INTERVAL_S, write_record

LEAST_S = 0.1  # minimum seconds between two records
NOTE_S = 30.0  # seconds between two log lines about the same problem
CLOSING_S = 5.0  # maximum seconds that `close` waits until the last record is written
LOCK = ".driver.lock"
MOST_HOLDER_BYTES = 300  # maximum number of bytes that are read from the lock file


class OutputLock:
    """The lock of the directory --output-filename, which a driver holds while it runs.

    As in `trainer.storage.save_directory`, the lock is a POSIX lock. The kernel releases the lock when the driver ends
    in any way, and workers that are forked from the driver do not hold the lock.

    Args: is_continued: whether this driver takes over the job of an earlier driver. The earlier driver may be frozen,
        and may still hold the lock. This driver then writes without the lock.

    Raises: DirectoryInUseError: another driver holds the lock.  OSError: the lock file cannot be written.
    """

    def __init__(self, directory: Path, is_continued: bool) -> None:
        self._path, self._handle = directory / LOCK, -1
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        while self._handle < 0:
            handle = os.open(self._path, flags, 0o666)
            try:
                if not self._take(handle, is_continued):
                    return
                with contextlib.suppress(FileNotFoundError):  # a driver that has just ended may remove the locked file
                    if os.path.samestat(os.fstat(handle), self._path.lstat()):
                        self._handle, handle = handle, -1
            finally:
                if handle >= 0:
                    os.close(handle)
        with contextlib.suppress(OSError):  # a full volume; the text only helps users
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def close(self) -> None:
        """Release the lock, and remove its file."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._handle)
            self._handle = -1

    def _take(self, handle: int, is_continued: bool) -> bool:
        """Lock a file; return False if this driver has to write without the lock."""
        directory = self._path.parent
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EAGAIN):
                if is_continued:
                    return False
                holder = os.pread(handle, MOST_HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
                raise DirectoryInUseError(
                    f"--output-filename: another driver writes into {directory} "
                    f"({glog.clean(holder) or 'it has just begun'}); wait for its end, or choose another directory"
                ) from exc
            if exc.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            glog.warning(f"the file system of {directory} has no locks: make sure that no other driver writes into it")
            return False
        return True


class MembershipRecorder(threading.Thread):
    """A thread that writes membership.json from its construction until `close`.

    Args: history: history of the job.  is_continued: whether to continue the file of an earlier driver of the same job.

    Raises: VolumeError: the directory cannot be made.  DirectoryInUseError: another driver writes into the directory.
    """

    def __init__(self, settings: ElasticSettings, history: JobHistory, is_continued: bool) -> None:
        super().__init__(name="membership-file", daemon=True)
        directory = Path(settings.output_filename or "")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = OutputLock(directory, is_continued)
        except OSError as exc:
            raise VolumeError(f"--output-filename: {directory} cannot be written: {exc.strerror}") from exc
        self._path = directory / NAME
        self._history = history
        self._facts = {
            "version": VERSION,
            "driver": f"{socket.gethostname()}, process {os.getpid()}",
            "began": time.time(),
            "least": settings.min_num_proc,
            "most": settings.max_num_proc,
            "goes_on": bool(settings.store_dir),
        }
        self._end: dict[str, object] | None = None
        self._noted = float("-inf")
        if is_continued:
            with contextlib.suppress(OSError, DamagedError):
                found = read_record(self._path)
                self._facts["began"] = found["began"]
                history.restore(found)
        self._write(None)
        self.start()

    def close(self, status: int, reason: str) -> None:
        """Write the last record, which describes the end of the job, and release the directory."""
        self._end = {"status": status, "reason": reason[:MOST_REASON]}
        self._history.changed.set()
        self.join(CLOSING_S)
        if self.is_alive():
            glog.warning(f"{self._path} lacks the end of the job: the volume has not answered for {CLOSING_S:g} s")
        else:
            self._lock.close()

    def run(self) -> None:
        """Write until closed."""
        while self._end is None:
            self._history.changed.wait(INTERVAL_S)
            self._history.changed.clear()
            self._write(None)
            if self._end is None:
                time.sleep(LEAST_S)
        self._write(self._end)

    def _write(self, end: dict[str, object] | None) -> None:
        record = {**self._facts, **self._history.describe(), "end": end, "written": time.time()}
        try:
            write_record(self._path, json.dumps(record))
        except OSError as exc:
            if end is not None or time.monotonic() - self._noted >= NOTE_S:
                self._noted = time.monotonic()
                glog.warning(f"{self._path} cannot be written: {exc.strerror}")

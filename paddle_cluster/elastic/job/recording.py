"""Records the state of a job in the directory --output-filename; a separate thread writes while the job runs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

from paddle_base.runtime import glog
from paddle_base.runtime.directory_lock import DirectoryLock
from paddle_base.runtime.errors import DamagedError, DirectoryInUseError
from paddle_base.runtime.health.steady_time import steady_time
from paddle_base.runtime.rate_limit import PROBLEM_LINE_S, RateLimit
from paddle_base.runtime.status_files import INTERVAL_S, write_record
from paddle_cluster.elastic.job.membership_file import MOST_REASON, NAME, VERSION, read_record
from paddle_cluster.elastic.launching.output import unwritable
from paddle_cluster.elastic.membership.history import JobHistory
from paddle_cluster.elastic.settings import ElasticSettings

LEAST_S = 0.1  # minimum seconds between two records
CLOSING_S = 5.0  # maximum seconds that `close` waits until the last record is written
LOCK = ".driver.lock"


def lock_output(directory: Path, is_continued: bool) -> DirectoryLock | None:
    """Lock the directory --output-filename for this driver. Return None if this driver writes without the lock.

    Args: is_continued: whether this driver takes over the job of an earlier driver. The earlier driver may be frozen,
        and may still hold the lock. This driver then writes without the lock.

    Raises: DirectoryInUseError: another driver holds the lock.  OSError: the lock file cannot be opened.
    """
    try:
        return DirectoryLock(directory / LOCK, f"--output-filename: another driver writes into {directory}")
    except DirectoryInUseError:
        if not is_continued:
            raise
        return None


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
            self._lock = lock_output(directory, is_continued)
        except OSError as exc:
            raise unwritable(directory, exc) from exc
        self._path = directory / NAME
        self._history = history
        self._facts = {
            "version": VERSION,
            "driver": f"{socket.gethostname()}, process {os.getpid()}",
            "began": steady_time(),
            "least": settings.min_num_proc,
            "most": settings.max_num_proc,
            "goes_on": bool(settings.store_dir),
        }
        self._end: dict[str, object] | None = None
        self._lines = RateLimit(PROBLEM_LINE_S)
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
        elif self._lock is not None:
            self._lock.release()

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
        record = {**self._facts, **self._history.describe(), "end": end, "written": steady_time()}
        try:
            write_record(self._path, json.dumps(record))
        except OSError as exc:
            if self._lines.is_due(time.monotonic()) or end is not None:
                glog.warning(f"{self._path} cannot be written: {exc.strerror}")

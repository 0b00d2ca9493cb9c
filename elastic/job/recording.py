"""Records the state of a job in the directory --output-filename; a separate thread writes while the job runs."""

from __future__ import annotations

import contextlib
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
from runtime.durable_files import replace_file
from runtime.errors import DamagedError, VolumeError
from runtime.status_files import INTERVAL_S

LEAST_S = 0.1  # minimum seconds between two records
NOTE_S = 30.0  # seconds between two log lines about the same problem
CLOSING_S = 5.0  # maximum seconds that `close` waits until the last record is written


class MembershipRecorder(threading.Thread):
    """A thread that writes membership.json from its construction until `close`.

    Args: history: history of the job.  is_continued: whether to continue the file of an earlier driver of the same job.

    Raises: VolumeError: the directory cannot be made.
    """

    def __init__(self, settings: ElasticSettings, history: JobHistory, is_continued: bool) -> None:
        super().__init__(name="membership-file", daemon=True)
        directory = Path(settings.output_filename or "")
        try:
            directory.mkdir(parents=True, exist_ok=True)
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
        self._write()
        self.start()

    def close(self, status: int, reason: str) -> None:
        """Write the last record, which describes the end of the job."""
        self._end = {"status": status, "reason": reason[:MOST_REASON]}
        self._history.changed.set()
        self.join(CLOSING_S)

    def run(self) -> None:
        """Write until closed."""
        while self._end is None:
            self._history.changed.wait(INTERVAL_S)
            self._history.changed.clear()
            self._write()
            if self._end is None:
                time.sleep(LEAST_S)
        self._write()

    def _write(self) -> None:
        record = {**self._facts, **self._history.describe(), "end": self._end, "written": time.time()}
        try:
            replace_file(self._path, json.dumps(record))
        except OSError as exc:
            if time.monotonic() - self._noted >= NOTE_S:
                self._noted = time.monotonic()
                glog.warning(f"{self._path} cannot be written: {exc.strerror}")

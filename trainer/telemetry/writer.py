"""Write the reports of a run in a thread of their own, so that a slow volume does not delay training."""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from paddle_base.runtime import glog
from trainer.records.records import FILE
from trainer.telemetry.snapshot import Snapshot

PERIOD_S = 5.0  # seconds between two writes of progress.json
MOST_UNWRITTEN = 10_000  # maximum number of lines that are kept for a volume that cannot be written
REPORT_SHARE = 0.05  # maximum fraction of the training time in which reports are made


class WriterState(enum.Enum):
    """The states of a writer, in their order. The training thread sets the first three states."""

    NEW = "the thread has not been started, and lines are kept in memory"
    WRITING = "the thread makes a round of writes whenever a round is due"
    ENDING = "end() has been called; the next round is the last one, and makes the report"
    ENDED = "the last round has begun, and later reports are not written"


class Round(NamedTuple):
    """The content of one round of writes. All of it was taken at the same moment."""

    lines: list[str]
    snapshot: Snapshot | None
    makes_report: bool
    is_last: bool


class Writer(threading.Thread):
    """Append records to records.jsonl, and write the progress files and the report when they are due.

    Two threads share the fields `_state`, `_lines`, `_snapshot`, `_is_asked` and `_wants_report`. A thread must hold
    `_lock` to read or change a shared field. `_take` takes the whole content of a round while it holds the lock. So
    the snapshot and the records in a report are from the same moment, and the last report contains the last record.
    Only the writing thread uses the other fields.

    Args: output: directory of records.jsonl and report.html. write_progress: a function that writes the progress files.
        Its argument is the newest snapshot, or None before the first snapshot. has_report: whether to make the report.
    """

    def __init__(self, output: Path, write_progress: Callable[[Snapshot | None], None], *, has_report: bool) -> None:
        super().__init__(name="writer", daemon=True)
        self._output, self._write_progress = output, write_progress
        # The code takes the lock directly instead of through the condition. A signal handler may raise an exception in
        # Condition.__enter__, which is Python code, after that method has taken the lock. The lock would then never be
        # released.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._state = WriterState.NEW
        self._lines: list[str] = []
        self._snapshot: Snapshot | None = None
        self._is_asked = self._wants_report = False
        self._unwritten: list[str] = []  # lines that could not be written, and that the next round writes
        self._has_warned = False
        self._report_due = 0.0 if has_report else math.inf

    @property
    def _has_report(self) -> bool:
        return self._report_due < math.inf

    def start(self) -> None:
        """Start the thread. It makes the first round at once, so that `paddle status` soon knows of the run."""
        with self._lock:
            self._state, self._is_asked = WriterState.WRITING, True
        super().start()

    def tell(self, snapshot: Snapshot, line: str = "") -> None:
        """Set the newest snapshot, with its line for records.jsonl."""
        with self._lock:
            self._snapshot = snapshot
            if line:
                self._lines.append(line)

    def show(self) -> None:
        """Request that the files are written now. The report is made as soon as REPORT_SHARE permits."""
        with self._lock:
            self._is_asked = True
            self._wants_report = self._has_report
            self._changed.notify()

    def end(self, limit_s: float) -> None:
        """Let the thread make its last round and end. Wait at most `limit_s` seconds for this."""
        with self._lock:
            self._state = WriterState.ENDING if self._state is WriterState.WRITING else WriterState.ENDED
            self._changed.notify()
        if self.is_alive():
            self.join(limit_s)

    def run(self) -> None:
        """Make rounds of writes until the last round."""
        is_last = False
        while not is_last:
            lines, snapshot, makes_report, is_last = self._take()
            self._unwritten = [*self._unwritten, *lines][-MOST_UNWRITTEN:]
            self._try(self._append)
            self._try(lambda snapshot=snapshot: self._write_progress(snapshot))  # type: ignore[misc]
            if makes_report:
                self._try(self._make_report)

    def _take(self) -> Round:
        """Wait until a round is due, and return its content."""
        with self._lock:
            if self._state is WriterState.WRITING and not self._is_asked:
                self._changed.wait(self._patience())
            self._is_asked = False
            is_last = self._state is WriterState.ENDING
            is_due = self._wants_report and time.monotonic() >= self._report_due
            makes_report = self._has_report and (is_last or is_due)
            if makes_report:
                self._wants_report = False
            if is_last:
                self._state = WriterState.ENDED
            lines, self._lines = self._lines, []
            return Round(lines, self._snapshot, makes_report, is_last)

    def _patience(self) -> float:
        """Return the maximum seconds until the next round."""
        if not self._wants_report:
            return PERIOD_S
        return min(PERIOD_S, max(0.0, self._report_due - time.monotonic()))

    def _append(self) -> None:
        if not self._unwritten:
            return
        path = self._output / FILE
        with path.open("ab") as file:
            if file.tell() and not ends_line(path):
                file.write(b"\n")  # an earlier writer was interrupted within a line
            file.write("".join(self._unwritten).encode())
        self._unwritten = []

    def _make_report(self) -> None:
        # this import takes 48 ms of CPU time (median of nine), and only trainer 0 makes reports
        from trainer.report import write_report

        began = time.monotonic()
        write_report(self._output)
        took = time.monotonic() - began
        self._report_due = time.monotonic() + took / REPORT_SHARE

    def _try(self, action: Callable[[], None]) -> None:
        """Call the action. Its errors do not end the thread. Only the first error is logged."""
        try:
            action()
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                # str() of an OSError contains the path of the file, and repr() does not
                why = f"{type(error).__name__}: {error}"
                glog.warning(f"records, progress or report cannot be written; training continues without them: {why}")


def ends_line(path: Path) -> bool:
    """Return whether a non-empty file ends with a newline."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"

"""The thread that writes what a run tells its owner, so that no volume holds up the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pserver import glog
from trainer.records import FILE

PERIOD_S = 5.0  # between two writes of progress.json
MOST_UNWRITTEN = 10_000  # lines that wait for a volume
REPORT_SHARE = 0.05  # of the time, at most, goes into making reports while training goes on


class Writer(threading.Thread):
    """Appends records, and lets progress and report be written when they are due.

    Args: output: directory of records.jsonl and report.html.  write_progress: writes the progress files.
        has_report: makes the report, too.
    """

    def __init__(self, output: Path, write_progress: Callable[[], None], *, has_report: bool) -> None:
        super().__init__(name="writer", daemon=True)
        self._output, self._write_progress, self._has_report = output, write_progress, has_report
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._unwritten: list[str] = []  # the thread's own: a volume that is full or away may come back
        self._is_shown = self._is_ending = self._has_warned = False
        self._report_due = 0.0

    def append(self, line: str) -> None:
        """Take a line of records.jsonl."""
        with self._changed:
            self._lines.append(line)

    def show(self) -> None:
        """Let the files be written now, the report as soon as its share of the time allows."""
        with self._changed:
            self._is_shown = True
            self._changed.notify()

    def end(self, limit_s: float) -> None:
        """Write everything once more and end; give up after so many seconds."""
        with self._changed:
            self._is_ending = self._is_shown = True
            self._changed.notify()
        if self.is_alive():
            self.join(limit_s)

    def run(self) -> None:
        """Write what is due until told to end."""
        is_ending = False
        while not is_ending:
            with self._changed:
                if not self._is_ending:
                    self._changed.wait(self._patience())
                is_ending = self._is_ending
                lines, self._lines = self._lines, []
            self._unwritten = [*self._unwritten, *lines][-MOST_UNWRITTEN:]
            self._try(self._append)
            self._try(self._write_progress)
            if self._is_shown and self._has_report and (is_ending or time.monotonic() >= self._report_due):
                self._is_shown = False
                self._try(self._make_report)

    def _patience(self) -> float:
        """Return how long to wait for something to do."""
        if not self._is_shown:
            return PERIOD_S
        return min(PERIOD_S, max(0.0, self._report_due - time.monotonic()))

    def _append(self) -> None:
        if not self._unwritten:
            return
        path = self._output / FILE
        with path.open("ab") as file:
            if file.tell() and not ends_line(path):
                file.write(b"\n")  # an earlier writer was cut short
            file.write("".join(self._unwritten).encode())
        self._unwritten = []

    def _make_report(self) -> None:
        from trainer.report import write_report  # its import takes longer than most reports

        began = time.monotonic()
        write_report(self._output)
        took = time.monotonic() - began
        self._report_due = time.monotonic() + took / REPORT_SHARE

    def _try(self, action: Callable[[], None]) -> None:
        """Do it; what fails is no reason to stop training."""
        try:
            action()
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                why = f"{type(error).__name__}: {error}"  # of a file with its path, which a repr leaves out
                glog.warning(f"records, progress or report cannot be written, training goes on without: {why}")


def ends_line(path: Path) -> bool:
    """Tell whether a file that is not empty ends with a newline."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"

"""Shows the output of a remote worker line by line in its own thread; a slow reader delays only this worker."""

from __future__ import annotations

import contextlib
import threading
from io import FileIO
from types import TracebackType

from paddle_base.runtime.health.service_threads import ServiceThread
from paddle_cluster.elastic.agent.protocol import KINDS, MOST_CHUNK, StreamMark, StreamPart, WorkerNews
from paddle_cluster.elastic.launching.output import OutputWriter


class OutputShower:
    """A context manager that shows the output of a worker.

    Attributes: marks: by stream, the number of bytes that the driver has shown and the number that it has received.

    Raises: VolumeError: on entry, the files of the rank cannot be written.
    """

    def __init__(self, writer: OutputWriter, rank: int) -> None:
        self._writer, self._rank = writer, rank
        self.marks = {kind: StreamMark() for kind in KINDS}
        self._changed = threading.Condition()
        self._news: WorkerNews | None = None
        self._is_over = False
        self._thread = ServiceThread(self._run, "output")

    def __enter__(self) -> OutputShower:
        self._files = self._writer.open(self._rank)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until all given output is shown; return whether all of the output is shown."""
        with self._changed:
            return self._changed.wait_for(lambda: self._news is None, seconds)

    def give(self, news: WorkerNews) -> None:
        """Show the parts of an answer; all earlier parts must be shown already."""
        with self._changed:
            self._news = news
            self._changed.notify_all()

    def has_all(self, news: WorkerNews) -> bool:
        """Wait until the given answer is shown; return whether all output of the worker has been shown by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._news is None)
            return all(self.marks[kind].shown >= part.total for kind, part in news.parts.items())

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                if file is not None:
                    stack.callback(file.close)
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_over or self._news is not None)
                    news = self._news
                if news is None:
                    return
                marks = {
                    kind: self._show(kind, part, self._files[kind], is_last=news.exit_code is not None)
                    for kind, part in news.parts.items()
                }
                with self._changed:
                    self.marks, self._news = marks, None
                    self._changed.notify_all()

    def _show(self, kind: str, part: StreamPart, file: FileIO | None, is_last: bool) -> StreamMark:
        """Show the complete lines of a part, and an incomplete line that fills an answer or is the last line."""
        data = part.data
        end = part.first + len(data)
        lines = data[: data.rfind(b"\n") + 1] or (data if len(data) >= MOST_CHUNK else b"")
        if is_last and end >= part.total:
            lines = data
        if lines:
            self._writer.show(self._rank, kind, lines, file)
        return StreamMark(part.first + len(lines), end)

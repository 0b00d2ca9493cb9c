"""The agent keeps the output of a worker until the driver has shown it; a worker that writes too fast has to wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import FileIO
from typing import IO

from paddle_cluster.elastic.agent.protocol import KINDS, MOST_CHUNK, StreamMark, StreamPart, WorkerNews

MOST_KEPT = 256 << 10  # number of kept bytes of a stream from which on the worker has to wait


@dataclass
class _KeptStream:
    """The kept bytes of a stream, which begin at the offset `first` of the stream."""

    data: bytearray = field(default_factory=bytearray)
    first: int = 0
    is_open: bool = False

    @property
    def total(self) -> int:
        return self.first + len(self.data)

    def forget(self, end: int) -> None:
        gone = min(max(0, end - self.first), len(self.data))
        del self.data[:gone]
        self.first += gone


class WorkerOutput:
    """The standard output, the standard error and the exit code of a worker.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._streams = {kind: _KeptStream() for kind in KINDS}
        self._exit: int | None = None
        self._is_unwanted = False

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Record that both streams are open; return no files, because the driver writes the output files."""
        with self._changed:
            for stream in self._streams.values():
                stream.is_open = True
        return dict.fromkeys(KINDS)

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Read one stream of a worker to its end, and keep the bytes; wait while there is no room."""
        stream = self._streams[kind]
        try:
            with contextlib.closing(source):
                while chunk := source.read(1 << 16):
                    with self._changed:
                        self._changed.wait_for(lambda: self._is_unwanted or len(stream.data) < MOST_KEPT)
                        stream.data += chunk
                        if self._is_unwanted:
                            stream.forget(stream.total)
                        self._changed.notify_all()
        finally:
            with self._changed:
                stream.is_open = False
                self._changed.notify_all()

    def finish(self, exit_code: int) -> None:
        """Wait until each stream has ended or has room for more bytes; then store the exit code of the worker."""
        with self._changed:
            streams = self._streams.values()
            self._changed.wait_for(lambda: all(not one.is_open or len(one.data) < MOST_KEPT for one in streams))
            self._exit = exit_code
            self._changed.notify_all()

    def discard(self) -> None:
        """Drop all present and further output, because no driver asks for the output."""
        with self._changed:
            self._is_unwanted = True
            for stream in self._streams.values():
                stream.forget(stream.total)
            self._changed.notify_all()

    def read(self, marks: Mapping[str, StreamMark], most: int, wait: float) -> WorkerNews:
        """Return output that the driver has not shown yet; wait for new output at most `wait` seconds.

        Args: most: maximum number of returned bytes of each stream.
        """

        def is_news() -> bool:
            return self._exit is not None or any(one.total > marks[kind].seen for kind, one in self._streams.items())

        with self._changed:
            for kind, mark in marks.items():
                self._streams[kind].forget(mark.shown)
            self._changed.notify_all()
            self._changed.wait_for(is_news, wait)
            limit = min(most, MOST_CHUNK)
            parts = {
                kind: StreamPart(one.first, bytes(one.data[:limit]), one.total) for kind, one in self._streams.items()
            }
            return WorkerNews(parts, self._exit)

    @property
    def is_empty(self) -> bool:
        """Whether the driver has shown all output."""
        with self._changed:
            return not any(one.data for one in self._streams.values())

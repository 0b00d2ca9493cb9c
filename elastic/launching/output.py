"""The workers' output: each line on the driver's own with the worker's rank, and in a file of each rank.

    [0]<stdout>:a line of rank 0
    [1]<stderr>:a line of rank 1

The rank is the one that the worker began with.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import IO, Protocol

from runtime.errors import VolumeError

MOST_LINE_BYTES = 1 << 20  # a longer line is shown in parts
KINDS = ("stdout", "stderr")


class OutputSink(Protocol):
    """Where the output of a worker goes."""

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Return the files of a rank, by stream."""

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Take what a worker writes until its end; close both files."""


class OutputWriter:
    """Writes lines of all workers.

    Args: directory: for `rank.<number>/stdout` and `stderr`; None: no files.  width: digits of the number.
        has_time: whether a line begins with the time.  is_continued: the files are those of an earlier driver.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self,
        directory: Path | None,
        width: int,
        has_time: bool,
        now: Callable[[], float] = time.time,
        is_continued: bool = False,
    ) -> None:
        self._directory, self._width, self._has_time, self._now = directory, width, has_time, now
        self._lock = threading.Lock()
        self._is_continued = is_continued
        self._begun: set[int] = set()  # ranks whose files this job has begun

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Return the files of a rank: new ones at first, then the same, as a later worker may have the same rank.

        Raises: VolumeError: they cannot be written.
        """
        if self._directory is None:
            return dict.fromkeys(KINDS)
        directory = self._directory / f"rank.{rank:0{self._width}d}"
        with self._lock:
            mode = "ab" if self._is_continued or rank in self._begun else "wb"
            self._begun.add(rank)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            return {kind: FileIO(directory / kind, mode) for kind in KINDS}
        except OSError as exc:
            raise VolumeError(f"--output-filename: {directory} cannot be written: {exc.strerror}") from exc

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Copy what a worker writes until its end; close both files."""
        prefix = f"[{rank}]<{kind}>:".encode()
        rest = b""
        with contextlib.closing(source), contextlib.closing(file) if file else contextlib.nullcontext():
            while chunk := os.read(source.fileno(), 1 << 16):
                if file is not None:
                    with contextlib.suppress(OSError):  # a full volume does not end the worker
                        file.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) >= MOST_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                self._show(prefix, lines, kind)
            self._show(prefix, [rest] if rest else [], kind)

    def show(self, rank: int, kind: str, text: bytes, file: FileIO | None) -> None:
        """Show whole lines of a worker."""
        if file is not None:
            with contextlib.suppress(OSError):
                file.write(text)
        self._show(f"[{rank}]<{kind}>:".encode(), text.removesuffix(b"\n").split(b"\n"), kind)

    def _show(self, prefix: bytes, lines: list[bytes], kind: str) -> None:
        if not lines:
            return
        stamp = time.ctime(self._now()).encode() if self._has_time else b""
        text = b"".join(stamp + prefix + line + b"\n" for line in lines)
        stream = sys.stdout if kind == "stdout" else sys.stderr
        with self._lock, contextlib.suppress(OSError, ValueError):  # a reader that is gone does not end the worker
            if hasattr(stream, "buffer"):
                stream.buffer.write(text)
            else:  # of a notebook
                stream.write(text.decode(errors="replace"))
            stream.flush()

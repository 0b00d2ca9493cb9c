"""The output of the workers: the driver prints each line with the rank, and copies the line to a file of the rank.

    [0]<stdout>:a line of rank 0
    [1]<stderr>:a line of rank 1

The rank is the rank with which the worker was started.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import IO, Protocol

from paddle_base.runtime import glog
from paddle_base.runtime.durable_files import REMEDY
from paddle_base.runtime.errors import VolumeError

MOST_LINE_BYTES = 1 << 20  # maximum bytes of a line; a longer line is shown in parts
KINDS = ("stdout", "stderr")
OLD_IMPORT = b"ModuleNotFoundError: No module named 'horovod'"  # last line of a script that was not moved
MOVE_IMPORT = (
    "the script imports horovod, which is not installed: change its line `import horovod.torch as hvd` into `import "
    "paddle.elastic.torch as hvd`; docs/horovod.md names the modules for other lines, also for scripts of TensorFlow "
    "and Keras, which have to call paddle.elastic with numpy arrays"
)


def unwritable(directory: Path, error: OSError) -> VolumeError:
    """Return the error of a directory --output-filename in which nothing can be written."""
    return VolumeError(
        f"--output-filename: {directory} cannot be written: {error.strerror}; make room, or name another directory"
    )


def keep_earlier(path: Path) -> None:
    """Give the output of an earlier job another name: stdout becomes stdout.1, or the next number that is free.

    Raises: OSError.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size:
            names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
            path.rename(next(name for name in names if not os.path.lexists(name)))


class WorkerPipe(FileIO):
    """The end of a pipe from which the output of a worker is read. A single thread reads it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "rb")
        self._is_idle = threading.Event()  # set while the reader has handled everything and waits for more
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self, size: int | None = -1) -> bytes:
        """Wait for output, and return at most `size` bytes of it; return nothing at the end."""
        if not self._poll.poll(0):
            self._is_idle.set()
            self._poll.poll()
            self._is_idle.clear()
        return super().read(size) or b""

    def close(self) -> None:
        """Close the pipe."""
        super().close()
        self._is_idle.set()

    def wait_until_drained(self, seconds: float) -> None:
        """Wait until the reader has handled all output that is in the pipe now.

        A child that outlives its worker keeps the pipe open, so the end of the pipe may come much later.
        """
        until, poll = time.monotonic() + seconds, select.poll()
        with contextlib.suppress(ValueError):  # the reader has closed the pipe
            poll.register(self.fileno(), select.POLLIN)
            while not self.closed and (left := until - time.monotonic()) > 0:
                if poll.poll(0):  # output, or the end; first, because the reader clears the event before it reads
                    time.sleep(0.001)
                elif self._is_idle.is_set():
                    return
                else:
                    self._is_idle.wait(left)


class OutputSink(Protocol):
    """A destination for the output of a worker."""

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Return the files of a rank by stream; None: the stream has no file."""

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Process the output of a worker to its end; close `source` and `file`."""


class OutputWriter:
    """Writes the lines of all workers.

    Args:
    - directory: directory of the files `rank.<number>/stdout` and `stderr`; None: no files.
    - width: number of digits of the number in these names.
    - has_time: whether a line begins with the time.
    - is_continued: whether to append to the files of an earlier driver.

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
        self._begun: set[int] = set()  # ranks whose files this driver has opened before
        self._lossy: set[str] = set()  # files that lack output
        self._has_explained = False  # whether the log says how to move a script of Horovod

    def open(self, rank: int) -> dict[str, FileIO | None]:
        """Open the files of a rank: new files for the first worker of the rank; later workers append to the files.

        Raises: VolumeError: the files cannot be written.
        """
        if self._directory is None:
            return dict.fromkeys(KINDS)
        directory = self._directory / f"rank.{rank:0{self._width}d}"
        with self._lock:
            is_new = not self._is_continued and rank not in self._begun
            self._begun.add(rank)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for kind in KINDS if is_new else ():
                keep_earlier(directory / kind)
            return {kind: FileIO(directory / kind, "ab") for kind in KINDS}  # another writer cannot leave gaps in them
        except OSError as exc:
            raise unwritable(directory, exc) from exc

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        """Copy the output of a worker to its end; close `source` and `file`."""
        prefix = f"[{rank}]<{kind}>:".encode()
        rest = b""
        with contextlib.closing(source), contextlib.closing(file) if file else contextlib.nullcontext():
            while chunk := source.read(1 << 16):
                if file is not None:
                    self._keep(file, chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) >= MOST_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                self._show(prefix, lines, kind)
            self._show(prefix, [rest] if rest else [], kind)

    def show(self, rank: int, kind: str, text: bytes, file: FileIO | None) -> None:
        """Show whole lines of a worker."""
        if file is not None:
            self._keep(file, text)
        self._show(f"[{rank}]<{kind}>:".encode(), text.removesuffix(b"\n").split(b"\n"), kind)

    def _keep(self, file: FileIO, text: bytes) -> None:
        """Write output to a file; a full volume does not end the worker."""
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as exc:
            with self._lock:
                is_first = str(file.name) not in self._lossy
                self._lossy.add(str(file.name))
            if is_first:
                glog.warning(
                    f"{file.name} lacks output of its worker, because it cannot be written: {exc.strerror}; {REMEDY}"
                )

    def _show(self, prefix: bytes, lines: list[bytes], kind: str) -> None:
        stream = sys.stdout if kind == "stdout" else sys.stderr
        if not lines or stream is None:  # a program that was started with a closed descriptor has no stream
            return
        stamp = time.ctime(self._now()).encode() if self._has_time else b""
        text = b"".join(stamp + prefix + line + b"\n" for line in lines)
        with self._lock, contextlib.suppress(OSError, ValueError):  # a closed terminal does not end the worker
            if hasattr(stream, "buffer"):
                stream.buffer.write(text)
            else:  # a notebook's stream has no buffer
                stream.write(text.decode(errors="replace"))
            stream.flush()
        if kind == "stderr" and any(line.startswith(OLD_IMPORT) for line in lines):
            with self._lock:
                is_first, self._has_explained = not self._has_explained, True
            if is_first:
                glog.warning(MOVE_IMPORT)

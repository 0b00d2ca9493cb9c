"""Runs a shell command, and copies its output; if this program ends, the command is ended, too.

Names are those of `horovod.runner.common.util.safe_shell_exec`.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from io import FileIO
from typing import IO, Protocol

from paddle_base.runtime import glog
from paddle_cluster.elastic.launching.guard import GRACE_S, to_status
from paddle_cluster.elastic.launching.output import KINDS, MOST_LINE_BYTES
from paddle_cluster.elastic.launching.processes import run_process, start_command

GRACEFUL_TERMINATION_TIME_S = GRACE_S
_ENDS = re.compile(r"(?<=[\r\n])")


class TextSink(Protocol):
    """A stream for text, e.g. a file, `io.StringIO` or `MultiFile`."""

    def write(self, text: str, /) -> object:
        """Write a text."""

    def flush(self) -> object:
        """Flush the written text."""


class _Source(Protocol):
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class _StreamSink:
    """Copies the output of a command to two streams."""

    def __init__(self, streams: Mapping[str, TextSink], index: int | None, has_time: bool) -> None:
        self._streams, self._index, self._has_time = streams, index, has_time

    def open(self, rank: int) -> dict[str, FileIO | None]:
        return dict.fromkeys(KINDS)

    def copy(self, source: IO[bytes], rank: int, kind: str, file: FileIO | None) -> None:
        prefix_connection(source, self._streams[kind], kind, self._index, self._has_time)


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: TextSink | None = None,
    stderr: TextSink | None = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a command of the shell to its end; return its exit code, or 128 + n after signal n.

    Args: env: variables of the command; the default is the environment of this process.  stdout, stderr: streams for
        the output; the default is the streams of this process.  index: number that begins each line; None: no line has
        a prefix.  events: each of these events ends the command.
    Raises: OSError: the command cannot be started.
    """
    streams: dict[str, TextSink] = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
    sink = _StreamSink(streams, index, prefix_output_with_timestamp)
    environ = os.environ if env is None else env
    start = start_command(["/bin/sh", "-c", command])
    ends = [one for one in events or () if one is not None]
    return to_status(run_process(start, environ, index or 0, sink, ends).exit_code)


def prefix_connection(
    src_connection: _Source,
    dst_stream: TextSink,
    prefix: str | None,
    index: int | None,
    prefix_output_with_timestamp: bool,
) -> None:
    """Copy a pipe to a stream up to its end, line by line, and close the pipe.

    A line ends with a line feed or a carriage return. If `index` and `prefix` are given, a line begins with
    `[index]<prefix>:`, after the time if `prefix_output_with_timestamp` is set.
    """
    decoder = codecs.getincrementaldecoder("utf8")("replace")
    line, chunk, is_shown = "", b"-", True
    with contextlib.closing(src_connection):
        while chunk:
            if isinstance(src_connection, FileIO):
                chunk = src_connection.read(1 << 16) or b""
            else:
                chunk = os.read(src_connection.fileno(), 1 << 16)
            *whole, line = _ENDS.split(line + decoder.decode(chunk, final=not chunk))
            if line and (not chunk or len(line) >= MOST_LINE_BYTES):
                whole, line = [*whole, line], ""
            stamp = time.asctime() if prefix_output_with_timestamp else ""
            start = "" if index is None or prefix is None else f"{stamp}[{index}]<{prefix}>:"
            if not whole or not is_shown:
                continue
            try:
                for one in whole:
                    dst_stream.write(start + one)
                dst_stream.flush()
            except (OSError, ValueError) as exc:  # the program must go on, so its pipe is read to the end all the same
                glog.warning(f"output of a program is lost: its stream takes no more ({type(exc).__name__}: {exc})")
                is_shown = False

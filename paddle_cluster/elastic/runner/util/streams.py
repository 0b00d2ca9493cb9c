"""A pipe within a process. Names are those of `horovod.runner.util.streams`."""

from __future__ import annotations

import threading


class Pipe:
    """A pipe that holds one text, or one bytes object, until it is read.

    Thread safety: one thread may write while another thread reads.
    """

    def __init__(self) -> None:
        self._held: str | bytes | None = None
        self._changed = threading.Condition()
        self._is_closed = False

    def write(self, buf: str | bytes) -> None:
        """Wait until the earlier text is read, and write. Raises: RuntimeError: the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is None or self._is_closed)
            if self._is_closed:
                raise RuntimeError("the pipe is closed")
            self._held = buf
            self._changed.notify_all()

    def read(self, length: int = -1) -> str | bytes | None:
        """Return at most `length` characters or bytes; -1: the whole text of one write; None: the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is not None or self._is_closed)
            if self._held is None:
                return None
            end = length if 0 < length < len(self._held) else len(self._held)
            taken, rest = self._held[:end], self._held[end:]
            self._held = rest or None
            self._changed.notify_all()
            return taken

    def flush(self) -> None:
        """Do nothing, because a reader gets a text at once."""

    def close(self) -> None:
        """Close the pipe; a reader still gets the last text."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

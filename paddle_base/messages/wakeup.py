"""Wake a thread that waits in a poller. Several calls before the thread wakes send only one byte."""

from __future__ import annotations

import contextlib
import socket


class WakeUp:
    """A pair of sockets; the poller waits for `fileno`.

    Thread safety: any thread may use `call`. Only the thread that is woken may use `fileno`, `clear` and `close`.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_called = False

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a thread calls `call`."""
        return self._reader.fileno()

    def call(self) -> None:
        """Wake the thread."""
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(OSError):  # the socket is closed
                self._writer.send(b"x")

    def clear(self) -> None:
        """Reset the descriptor; afterwards the thread must look for work.

        A call before the last line of this function sends no byte. No byte is needed, because the thread looks for work
        after the last line.
        """
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)
        self._is_called = False

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()

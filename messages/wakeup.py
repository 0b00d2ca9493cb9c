"""Wakes a thread that waits in a poller; many calls before it looks cost one byte."""

from __future__ import annotations

import contextlib
import socket


class WakeUp:
    """A pair of sockets; `fileno` is what the poller waits for.

    Thread safety: `call` may be used from any thread, the others by the thread that is woken.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._is_called = False

    def fileno(self) -> int:
        """Return the descriptor that is readable when the thread is called."""
        return self._reader.fileno()

    def call(self) -> None:
        """Wake the thread."""
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(OSError):  # it is closed
                self._writer.send(b"x")

    def clear(self) -> None:
        """Take note of the calls, and look next at what they are about.

        A call that comes before the last line costs no byte, and is about something that is there already.
        """
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)
        self._is_called = False

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()

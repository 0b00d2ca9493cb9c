"""Wake a thread that waits in a poller."""

from __future__ import annotations

import os
import threading


class WakeUp:
    """An event of the kernel (eventfd); the poller waits for `fileno`.

    Thread safety: any thread may use `call`. Only one thread may use the other methods.
    """

    def __init__(self) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # a late `call` must not write to a new file with the same number

    def fileno(self) -> int:
        """Return the descriptor, which becomes readable when a thread calls `call`; -1 after `close`."""
        return self._file

    def call(self) -> None:
        """Wake the thread; several calls before `clear` count as one. Do nothing after `close`."""
        with self._lock:
            if self._file >= 0:
                os.eventfd_write(self._file, 1)

    def clear(self) -> bool:
        """Reset the descriptor; afterwards the thread must look for work. Return whether there was a call."""
        try:
            return bool(os.eventfd_read(self._file))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

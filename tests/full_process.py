"""A process that has no free file descriptor, as far as a listening socket sees."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any


class FullProcess(socket.socket):
    """A listening socket of a process whose `free` descriptors are given to connections, and come back from them."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.free, self._accepted = free, list[socket.socket]()

    def accept(self) -> tuple[socket.socket, Any]:
        self._accepted = [one for one in self._accepted if one.fileno() >= 0]
        if len(self._accepted) >= self.free:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        stream, address = super().accept()
        self._accepted.append(stream)
        return stream, address

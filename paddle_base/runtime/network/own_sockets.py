"""Sockets that forked children of this process close at once.

A connection ends when the last process that has it ends. Without this module the children that a killed process leaves,
such as the workers of a DataLoader, would keep its connections open, and the other side would not notice its death.
"""

from __future__ import annotations

import os
import socket
import weakref

_KEPT: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def keep_from_children(stream: socket.socket) -> None:
    """Let every child that this process forks from now on close its copy of the socket."""
    _KEPT.add(stream)


def _close_all() -> None:
    for stream in list(_KEPT):
        stream.close()  # of the copy: the connection of the parent stays


os.register_at_fork(after_in_child=_close_all)

"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket

# below the ports of outgoing connections, because the kernel may use any of these at any moment
LOWEST, END = 20000, 32000


def free_ports(count: int) -> list[int]:
    """Returns consecutive ports of 127.0.0.1 that are free at this moment."""
    for _ in range(100):
        first = random.SystemRandom().randrange(LOWEST, END - count)
        ports = list(range(first, first + count))
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return ports
    raise AssertionError("no free ports")

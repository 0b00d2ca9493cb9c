"""What children of a process do with its sockets."""

from __future__ import annotations

import os
import socket

from paddle_base.runtime.network.own_sockets import keep_from_children


def test_a_forked_child_has_no_copy_of_a_socket_that_is_kept_from_it() -> None:
    here, there = socket.socketpair()
    given, kept = os.pipe()
    keep_from_children(here)
    child = os.fork()
    if not child:
        os.close(kept)
        os.read(given, 1)  # until the parent has ended
        os._exit(0)
    try:
        here.sendall(b"still open here")
        assert there.recv(100) == b"still open here"
        here.close()
        there.settimeout(60.0)
        assert there.recv(1) == b"", "the child keeps the connection open"
    finally:
        os.close(kept)
        os.close(given)
        os.waitpid(child, 0)
        there.close()

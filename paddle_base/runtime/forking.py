"""Requests to a fork server: a process that has imported what the programs of a pod need, and forks them.

The launcher starts the fork server as `paddle fork-server DESCRIPTOR PROGRAM...`, with one end of a pair of sockets.
For each program it sends a request with four descriptors: those of stdin, stdout and stderr, and the reading end of a
pipe. The answer is the pid. The program begins when the launcher writes a byte to the pipe, and ends if the launcher
closes the pipe instead; the launcher can therefore give up a request at any time. Both ends are processes of one pod,
and nobody else has a descriptor of the pair.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

FORK_SERVER = "fork-server"  # the argument of `paddle` that starts a fork server
DESCRIPTORS = 4
LENGTH = struct.Struct("<I")  # the length of a request in bytes
PID = struct.Struct("<i")
MOST_BYTES = 16 << 20  # of a request; Linux gives a program at most 6 MiB of arguments and environment


class ForkRequest(NamedTuple):
    """A program to fork.

    Attributes: argv: the words after `paddle`. environ: the whole environment of the program. files: the soft and the
        hard limit of open files.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    files: Sequence[int]


def send_request(connection: socket.socket, request: ForkRequest, descriptors: Sequence[int]) -> None:
    """Send a request. Raises: OSError: the fork server has ended, or does not read in time."""
    text = json.dumps({**request._asdict(), "environ": dict(request.environ)}).encode()
    socket.send_fds(connection, [LENGTH.pack(len(text))], descriptors)
    connection.sendall(text)


def receive_request(connection: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """Return a request and its descriptors, or None at the end of the connection.

    Raises: ValueError: the bytes are no request.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, DESCRIPTORS)
    if not head:
        return None
    if len(head) != LENGTH.size or len(descriptors) != DESCRIPTORS or LENGTH.unpack(head)[0] > MOST_BYTES:
        raise ValueError("expected the length of a request and its descriptors")
    text = bytearray()
    (left,) = LENGTH.unpack(head)
    while len(text) < left:
        chunk = connection.recv(left - len(text))
        if not chunk:
            raise ValueError("a request is cut off")
        text += chunk
    return ForkRequest(**json.loads(text)), descriptors

"""The messages between a fork server and its client, which are two processes with one pair of connected sockets.

For each program the client sends a request with descriptors: the reading end of a pipe, those of stdin, stdout and
stderr, and more if the program needs them. The answer is the pid, or an error number below 0. The program begins when
the client writes a byte to the pipe, and ends if the client closes the pipe instead; the client can therefore give up a
request at any time. Nobody else has a descriptor of the pair.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

DESCRIPTORS = 4  # least number of descriptors of a request
MOST_DESCRIPTORS = 8
LENGTH = struct.Struct("<I")  # the length of a request in bytes
PID = struct.Struct("<i")
MOST_BYTES = 16 << 20  # of a request; Linux gives a program at most 6 MiB of arguments and environment


class ForkRequest(NamedTuple):
    """A program to fork.

    Attributes: argv: the words of its command line, without those of the fork server's own. environ: the whole
        environment of the program. files: the soft and the hard limit of open files. is_leader: whether the program
        leads a new session.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    files: Sequence[int]
    is_leader: bool = False


def send_request(connection: socket.socket, request: ForkRequest, descriptors: Sequence[int]) -> None:
    """Send a request. Raises: OSError: the fork server has ended, or does not read in time."""
    text = json.dumps({**request._asdict(), "environ": dict(request.environ)}).encode()
    socket.send_fds(connection, [LENGTH.pack(len(text))], descriptors)
    connection.sendall(text)


def receive_request(connection: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """Return a request and its descriptors, or None at the end of the connection.

    Raises: ValueError: the bytes are no request.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, MOST_DESCRIPTORS)
    if not head:
        return None
    if len(head) != LENGTH.size or len(descriptors) < DESCRIPTORS or LENGTH.unpack(head)[0] > MOST_BYTES:
        raise ValueError("expected the length of a request and its descriptors")
    text = bytearray()
    (left,) = LENGTH.unpack(head)
    while len(text) < left:
        chunk = connection.recv(left - len(text))
        if not chunk:
            raise ValueError("a request is cut off")
        text += chunk
    return ForkRequest(**json.loads(text)), [_lift(one) for one in descriptors]


def _lift(descriptor: int) -> int:
    """Return a descriptor above those of the streams, which a process without streams receives first."""
    if descriptor > 2:
        return descriptor
    lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return lifted

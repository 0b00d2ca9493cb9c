"""What a zmq monitor socket says. zmq.utils.monitor does the same, but imports asyncio, which takes longer than zmq."""

from __future__ import annotations

import struct

import zmq

_EVENT = struct.Struct("=HI")  # the event and its value, in the machine's own order


def read_event(monitor: zmq.Socket[bytes]) -> tuple[int, int]:
    """Return the next event and its value, the file descriptor.

    Raises: zmq.Again: if there is none.
    """
    event, value = _EVENT.unpack(monitor.recv_multipart(zmq.NOBLOCK)[0])
    return event, value

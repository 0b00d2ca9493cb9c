"""The server's side of a round of many trainers: receive the expected messages of all connections that are ready, add
the gradients, send the answers.

A message has a header, whose bytes are known in advance except for some bits, and a payload, whose place is known in
advance. No function waits, and none decides: what is unexpected is left to the caller. Each function has a compiled
form, which makes all its system calls and sums in one call, and a form in Python with the same results.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[Any]

# the status of a message after `receive_expected`
WAITS = 0  # some bytes are missing, and all received bytes are as expected
COMPLETE = 1
UNEXPECTED = 2  # a bit of the header is not as expected; a part of the payload may have been received, too
ENDED = 3  # the connection is closed or broken

_COUNTER = struct.Struct("=Q")
_MOST_READS = 4  # reads from one connection in one call, so that the others are served, too


class ExpectedMessage(NamedTuple):
    """The next message of a connection.

    - `file`: file descriptor of the connection, which does not block.
    - `state`: the number of received bytes, the expected header and the received header.
    - `payload`: memory for the payload.
    """

    file: int
    state: bytearray
    payload: memoryview

    @classmethod
    def of(cls, file: int, header: bytes, payload: memoryview) -> ExpectedMessage:
        """Return a message of which nothing has been received."""
        return cls(file, bytearray(_COUNTER.pack(0) + header + bytes(len(header))), payload)

    @property
    def have(self) -> int:
        """The number of received bytes."""
        return int(_COUNTER.unpack_from(self.state)[0])

    @property
    def header(self) -> bytes:
        """The received header; its last bytes are zero if they have not been received."""
        state = self.state
        return bytes(state[(len(state) + _COUNTER.size) // 2 :])

    @property
    def header_bytes(self) -> int:
        """The length of the header."""
        return (len(self.state) - _COUNTER.size) // 2

    def list_received(self) -> list[memoryview]:
        """Return what has been received: the header or a part of it, and a part of the payload."""
        begin, of_header = _COUNTER.size + self.header_bytes, min(self.have, self.header_bytes)
        return [memoryview(self.state)[begin : begin + of_header], self.payload[: self.have - of_header]]


def receive_expected(messages: list[ExpectedMessage], mask: bytes) -> tuple[bytes, int]:
    """Receive what is there of each message; return the status of each message, and the number of received bytes.

    Args: messages: incomplete messages. mask: as long as a header; only the bits that are 1 must be as expected.
    Raises: ValueError: a message is complete already, or does not fit the mask.
    """
    if compiled is not None:
        statuses, received = compiled.receive_expected(messages, mask)
        return statuses, received
    before = [one.have for one in messages]
    for one, have in zip(messages, before, strict=True):
        if len(one.state) != _COUNTER.size + 2 * len(mask) or have >= len(mask) + len(one.payload):
            raise ValueError("a message is complete, or does not fit the mask")
    statuses = bytes(_receive_one(one, mask) for one in messages)
    return statuses, sum(one.have for one in messages) - sum(before)


def _receive_one(message: ExpectedMessage, mask: bytes) -> int:
    view = memoryview(message.state)
    expected, received = message.state[_COUNTER.size :][: len(mask)], view[_COUNTER.size + len(mask) :]
    for _ in range(_MOST_READS):
        have = message.have
        parts = [received[have:], message.payload] if have < len(mask) else [message.payload[have - len(mask) :]]
        try:
            size = os.readv(message.file, parts)
        except BlockingIOError:
            return WAITS
        except OSError:
            return ENDED
        if not size:
            return ENDED
        _COUNTER.pack_into(message.state, 0, have + size)
        known = zip(expected, received[: have + size], mask, strict=False)
        if have < len(mask) and any((one ^ other) & bits for one, other, bits in known):
            return UNEXPECTED
        if have + size == len(mask) + len(message.payload):
            return COMPLETE
    return WAITS


def send_answers(answers: list[tuple[int, bytes, bytes | bytearray | memoryview]]) -> list[int]:
    """Send each answer (file descriptor, header, payload) as far as its socket takes it; return the numbers of sent
    bytes. The number is -1 if the connection is broken.
    """
    if compiled is not None:
        sent: list[int] = compiled.send_answers(answers)
        return sent
    return [_send_one(*answer) for answer in answers]


def _send_one(file: int, header: bytes, payload: bytes | bytearray | memoryview) -> int:
    try:
        return os.writev(file, [header, payload])
    except BlockingIOError:
        return 0
    except OSError:
        return -1


def add_gradients(out: Array, gradients: Sequence[Array], start: int) -> None:
    """Write the sum of the elements of each gradient from `start` on into `out`, added in the order of the gradients.

    Shapes: out: (n,) float32, no part of a gradient; each gradient: (at least start + n,) float32 at any address.
    """
    if compiled is not None and fits(out):
        compiled.add_gradients(out, list(gradients), start)
        return
    stop = start + len(out)
    np.copyto(out, gradients[0][start:stop])
    for more in gradients[1:]:
        out += more[start:stop]

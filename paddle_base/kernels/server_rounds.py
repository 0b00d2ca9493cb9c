"""The server's side of a round of many trainers: receive the expected messages of all connections that are ready, add
the gradients, answer the messages.

A message has a header, whose bytes are known in advance except for some bits, and a payload, whose place is known in
advance. A header may end with a tag that authenticates it. No function waits, and none decides: what is unexpected is
left to the caller. Each function has a compiled form, which makes all its system calls and sums in one call, and a form
in Python with the same results.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from paddle_base.kernels import compiled, fits

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

# the status of a message after `receive_expected`
WAITS = 0  # some bytes are missing, and all received bytes are as expected
COMPLETE = 1
UNEXPECTED = 2  # the header is not as expected, or its tag is wrong; a part of the payload may have been received, too
ENDED = 3  # the connection is closed or broken

_COUNTER = struct.Struct("=Q")
_MOST_READS = 4  # reads from one connection in one call, so that the others are served, too
_TAG_BYTES = 8  # at the end of a header, if the message has a key


class ExpectedMessage(NamedTuple):
    """The next message of a connection, and its answer.

    - `file`: file descriptor of the connection, which does not block.
    - `state`: the number of received bytes, the expected header, the received header, and the header of the last
      answer.
    - `payload`: memory for the payload.
    - `receiving_key`, `sending_key`: the keys of BLAKE2b for the tags of the message and of its answer; empty: messages
      have no tags.
    """

    file: int
    state: bytearray
    payload: memoryview
    receiving_key: bytes = b""
    sending_key: bytes = b""

    @classmethod
    def of(
        cls, file: int, header: bytes, payload: memoryview, receiving_key: bytes = b"", sending_key: bytes = b""
    ) -> Self:
        """Return a message of which nothing has been received; `header` is the expected header."""
        state = bytearray(_COUNTER.pack(0) + header + bytes(2 * len(header)))
        return cls(file, state, payload, receiving_key, sending_key)

    def expect(self, header: bytes) -> None:
        """Expect a message with another header, of which nothing has been received."""
        self.state[: _COUNTER.size + len(header)] = _COUNTER.pack(0) + header

    @property
    def have(self) -> int:
        """The number of received bytes."""
        return int(_COUNTER.unpack_from(self.state)[0])

    @property
    def header(self) -> bytes:
        """The received header; its last bytes are zero if they have not been received."""
        return bytes(self._part(1))

    @property
    def answer(self) -> bytes:
        """The header of the last answer."""
        return bytes(self._part(2))

    @property
    def header_bytes(self) -> int:
        """The length of the header."""
        return (len(self.state) - _COUNTER.size) // 3

    @property
    def header_at(self) -> int:
        """The place of the received header in `state`."""
        return _COUNTER.size + self.header_bytes

    def list_received(self) -> list[memoryview]:
        """Return what has been received: the header or a part of it, and a part of the payload."""
        of_header = min(self.have, self.header_bytes)
        return [self._part(1)[:of_header], self.payload[: self.have - of_header]]

    def _part(self, number: int) -> memoryview:
        """Return a header of the state: 0: the expected header, 1: the received header, 2: the answer's."""
        begin = _COUNTER.size + number * self.header_bytes
        return memoryview(self.state)[begin : begin + self.header_bytes]


def receive_expected(messages: list[ExpectedMessage], mask: bytes) -> tuple[bytes, int]:
    """Receive what is there of each message; return the status of each message, and the number of received bytes.

    A header must have the expected bits, and its tag if the message has a key.

    Args: messages: incomplete messages. mask: as long as a header; only the bits that are 1 must be as expected.
    Raises: ValueError: a message is complete already, or does not fit the mask.
    """
    if compiled is not None:
        statuses, received = compiled.receive_expected(messages, mask)
        return statuses, received
    for one in messages:
        _check_state(one, len(mask))
        if one.have >= len(mask) + len(one.payload):
            raise ValueError("a message is complete")
    before = [one.have for one in messages]
    statuses = bytes(_receive_one(one, mask) for one in messages)
    return statuses, sum(one.have for one in messages) - sum(before)


def _check_state(message: ExpectedMessage, header: int) -> None:
    if len(message.state) != _COUNTER.size + 3 * header:
        raise ValueError("the state of a message does not fit the header")


def _receive_one(message: ExpectedMessage, mask: bytes) -> int:
    expected, received = message._part(0), message._part(1)
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
        if have < len(mask) <= have + size and not _is_signed(message):
            return UNEXPECTED
        if have + size == len(mask) + len(message.payload):
            return COMPLETE
    return WAITS


def _is_signed(message: ExpectedMessage) -> bool:
    if not message.receiving_key:
        return True
    header = message.header
    return hmac.compare_digest(header[-_TAG_BYTES:], _make_tag(header, message.receiving_key))


def _make_tag(header: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(header[:-_TAG_BYTES], digest_size=_TAG_BYTES, key=key).digest()


def send_answers(
    messages: list[ExpectedMessage], template: bytes, echo: bytes, number_at: int, payload: Buffer
) -> tuple[int, list[tuple[int, int]]]:
    """Answer each message as far as its socket takes the answer, and expect the message with the next number.

    Return the number of bytes that were sent, and for each answer that was not sent completely, its index and the
    number of its bytes that were sent. The number is -1 if the connection is broken.

    Args: template: the header of all answers. echo: the bits of the expected header that are added to it; then it gets
        its tag if the message has a key. number_at: the place in a header of a little-endian integer of 64 bits, which
        is 1 larger in the next message. payload: the payload of all answers.
    Raises: ValueError: a message, the mask or the place does not fit the header.
    """
    if compiled is not None:
        sent, unsent = compiled.send_answers(messages, template, echo, number_at, payload)
        return sent, unsent
    if len(echo) != len(template) or not 0 <= number_at <= len(template) - _COUNTER.size:
        raise ValueError("the mask or the place does not fit the header")
    for one in messages:
        _check_state(one, len(template))
    counts = [_send_one(one, template, echo, number_at, payload) for one in messages]
    whole = len(template) + len(payload)
    return sum(max(one, 0) for one in counts), [(at, one) for at, one in enumerate(counts) if one != whole]


def _send_one(message: ExpectedMessage, template: bytes, echo: bytes, number_at: int, payload: Buffer) -> int:
    expected = message._part(0)
    header = bytes(one | other & bits for one, other, bits in zip(template, expected, echo, strict=True))
    if message.sending_key:
        header = header[:-_TAG_BYTES] + _make_tag(header, message.sending_key)
    message._part(2)[:] = header
    number = expected[number_at : number_at + 8]
    number[:] = ((int.from_bytes(number, "little") + 1) % (1 << 64)).to_bytes(8, "little")
    _COUNTER.pack_into(message.state, 0, 0)
    try:
        return os.writev(message.file, [header, payload])
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

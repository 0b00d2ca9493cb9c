"""The messages between two ranks of a group.

A connection begins with the handshake of `pserver.wire.authentication`. After the handshake the connection carries
messages. A message has a header of 40 bytes, a note and a payload. The header has these fields:

- offset 0: 4 bytes, the text b"PDLC"; offset 4: u8, kind; offset 5: u8, version; offset 6: u16, zero
- offset 8: u32, length of the note; offset 12: u32, piece
- offset 16: u64, sequence; offset 24: u64, length of the payload; offset 32: 8 bytes, tag

An exchange is a step in which the ranks of the group send messages to each other. `sequence` is the number of the
exchange. By this number, two ranks detect that they are at different exchanges. `piece` is the number of a data message
among the data messages that a rank sends in one exchange. `tag` authenticates the preceding header fields and the note
with the key of the handshake for the sender's direction; without a secret `tag` is zeros. No I/O.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import NamedTuple

from pserver.wire.protocol import Buffer, ProtocolError

MAGIC = b"PDLC"
VERSION = 1
MAX_NOTE_BYTES = 1 << 20  # maximum bytes of a note, enough for an announcement of some thousand arrays
PIECE_BYTES = 1 << 20  # bytes; larger pieces need fewer messages, and a ring forwards smaller pieces earlier
MAX_PAYLOAD_BYTES = PIECE_BYTES
_HEADER = struct.Struct("<4sBBHIIQQ8s")
HEADER_BYTES = _HEADER.size
_TAG_BYTES = 8
_NO_TAG = bytes(_TAG_BYTES)


class FrameKind(enum.IntEnum):
    """The kinds of messages in a group."""

    HELLO = 1  # note: first this rank's shared memory, then the list of the ranks whose memory this rank can open
    ANNOUNCE = 2  # note: the collectives that this rank has called, and that have not run yet
    STEP = 3  # the data are in the shared memory of the sender
    DATA = 4  # payload: a piece of an array
    ABORT = 5  # note: the reason why this rank ends the group
    GOODBYE = 6  # this rank leaves without an error
    ALIVE = 7  # heartbeat of this rank


_KINDS = {int(kind): kind for kind in FrameKind}


class Frame(NamedTuple):
    """A received message."""

    kind: FrameKind
    sequence: int
    piece: int
    note: bytes
    payload: memoryview


_NOTHING = memoryview(b"")


def encode(
    kind: FrameKind, sequence: int, note: bytes, payload: Sequence[memoryview], key: bytes, piece: int = 0
) -> list[Buffer]:
    """Return the header, the note and the payload of a message; the payload is not copied.

    Raises: ProtocolError: the message exceeds the limits of the receiver.
    """
    length = sum(part.nbytes for part in payload)
    _check_limits(len(note), length)
    header = _HEADER.pack(MAGIC, kind, VERSION, 0, len(note), piece, sequence, length, _NO_TAG)
    if key:
        header = header[:-_TAG_BYTES] + _tag(header, note, key)
    return [header, note, *payload]


def decode(frames: Sequence[Buffer], key: bytes) -> Frame:
    """Return the message from its note, its payload, and a header that `measure` has accepted.

    Raises: ProtocolError: the tag is wrong, or the kind is unknown.
    """
    header, note = bytes(frames[0]), bytes(frames[1])
    if key and not hmac.compare_digest(header[-_TAG_BYTES:], _tag(header, note, key)):
        raise ProtocolError("a message whose tag does not prove the job's secret")
    values = _HEADER.unpack(header)
    kind = _KINDS.get(values[1])
    if kind is None:
        raise ProtocolError(f"a message of the unknown kind {values[1]}")
    return Frame(kind, values[6], values[5], note, memoryview(frames[2]) if len(frames) > 2 else _NOTHING)


def peek(header: Buffer) -> tuple[int, int]:
    """Return the fields `sequence` and `piece` of a header that `measure` has accepted."""
    values = _HEADER.unpack(header)
    return values[6], values[5]


def measure(head: bytes) -> tuple[int, int] | None:
    """Return the lengths of the note and of the payload after a header, or None if the header is incomplete.

    Raises: ProtocolError: the bytes cannot be a valid header, or the lengths exceed the limits.
    """
    if head[:4] != MAGIC[: len(head)]:
        raise ProtocolError(f"a message that begins with {head[:4]!r} instead of {MAGIC!r}")
    if len(head) > 5 and head[5] != VERSION:
        raise ProtocolError(f"a message of version {head[5]}; this program uses version {VERSION}")
    if len(head) < HEADER_BYTES:
        return None
    values = _HEADER.unpack(head)
    _check_limits(values[4], values[7])
    return values[4], values[7]


def _check_limits(note: int, payload: int) -> None:
    if note > MAX_NOTE_BYTES:
        raise ProtocolError(f"a note of {note} bytes is over the limit of {MAX_NOTE_BYTES}")
    if payload > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {payload} bytes is over the limit of {MAX_PAYLOAD_BYTES}")


def _tag(header: bytes, note: bytes, key: bytes) -> bytes:
    tag = hashlib.blake2b(header[:-_TAG_BYTES], digest_size=_TAG_BYTES, key=key)
    tag.update(note)
    return tag.digest()

"""The wire format: the layout of messages, and the checks of received messages, without numpy and sockets.

A TCP connection begins with a handshake (`pserver.wire.authentication`), in which both sides prove that they know the
secret. After the handshake, the connection carries messages without gaps. Each message consists of

    header    64 bytes, little-endian, below
    note      a JSON object, or nothing
    payload   the bytes of a little-endian array, or nothing; this module neither copies nor reads them

    offset  0  4s  magic b"PDLP"        offset  4  u16  version      offset  6  u8  op     offset  7  u8  flags
    offset  8  8s  session              offset 16  i32  trainer      offset 20  u32 length of the note
    offset 24  u64 sequence             offset 32  i64  argument     offset 40  u64 length of the payload
    offset 48  u32 piece                offset 52  u32  samples      offset 56  8s  tag

`session` is a digest of job and attempt, which assigns every message to its attempt. `sequence` counts the requests of
one trainer, so that a repeated or late request is recognized; an answer has the op and sequence of its request. An
array longer than PIECE_BYTES is sent in pieces, in several messages with one `sequence`; `piece` counts from 0. `tag`
authenticates the sender on this connection: it is computed from the other bytes of the header and from the note, with
the key from the handshake. Without a secret, `tag` is zero. In memory a message is a list of frames: header, note, and
the payload in any number of buffers. The first 8 bytes have the same meaning in every version, so that different
versions recognize each other. No I/O.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import hmac
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pserver.wire import notes
from pserver.wire.authentication import MAGIC, VERSION

DTYPE = "float32"
# bytes of a piece; the overhead of a message is small at this length, and sending, adding and receiving overlap
PIECE_BYTES = 2 << 20
MAX_NOTE_BYTES = 16 << 20  # maximum bytes of a note of LARGE_NOTES, which describes the model or the states of trainers
# maximum bytes of any other note; the longest is the note of ERROR with MAX_REASON characters of 12 bytes each
SMALL_NOTE_BYTES = 64 << 10
MAX_REASON = 4000  # maximum characters of the reason that a program gives when it gives up or refuses a request
MAX_PAYLOAD_BYTES = 4 << 20
RECONNECT_GRACE = 2.5  # seconds from the end of a peer's connection until the peer is lost; both sides have this limit

_HEADER = struct.Struct("<4sHBB8siIQqQII8s")
HEADER_BYTES = _HEADER.size
_COUNTS = struct.Struct("<QqQII")  # the fields from the sequence to the samples
_COUNTS_AT = 24
_TAG_BYTES = 8
_NO_TAG = bytes(_TAG_BYTES)

Buffer = bytes | bytearray | memoryview
NOTHING: Mapping[str, Any] = MappingProxyType({})  # the empty note of a message


class Op(enum.IntEnum):
    """The kind of a request. An answer has the op of its request, and a refusal has the op ERROR."""

    ERROR = 0
    HELLO = 1
    PING = 2
    INITIALISE = 3
    FETCH = 4
    START_PASS = 5
    PUSH = 6
    FINISH_PASS = 7
    GOODBYE = 8
    ABORT = 9
    CHECKPOINT = 10
    RESTORE = 11
    SAVE = 13  # write the values of every service to a file of the directory in the note
    LOAD = 14  # read the values of every service from a file that SAVE wrote
    CHECKPOINT_BLOB = 15  # binary data that belong to this trainer's part of the next checkpoint
    ENTER = 17  # in a task job: the trainer enters a view, and takes part in its rounds
    COMMIT = 18  # in a task job: apply the gradients of a round, which all services have received
    # the numbers 12 and 16 are types of records of the handshake


LARGE_NOTES = frozenset({Op.INITIALISE, Op.FETCH, Op.FINISH_PASS, Op.CHECKPOINT})
# the notes of these requests contain a trainer's part of a checkpoint, which becomes a part of a later note
_TAKEN_OVER = frozenset({Op.FINISH_PASS, Op.CHECKPOINT})


class Fetch(enum.IntEnum):
    """The argument of a FETCH. STATE + n is the n-th array of the state that CHECKPOINT listed."""

    INITIAL = 0
    AVERAGES = 1
    CURRENT = 2
    ROWS = 3
    CHECKPOINT_BLOB = 4
    STATE = 16


class MessageFlag:
    """Further properties of a message, as bits.

    The flags are plain integers, because combining members of an enum takes longer than parsing the message.
    """

    NONE = 0
    ANSWER = 1
    FATAL = 2  # an ERROR after which the job cannot continue
    CHECKPOINT = 4  # in a PUSH: its trainer requests a checkpoint after this batch; in an answer: a checkpoint is due
    LOCAL = 8  # the payload is in the shared memory and not in the message; the argument is its length in bytes
    KEEP = 16  # in a PUSH or COMMIT: its trainer keeps its values; the answer contains no values
    PREPARED = 32  # in an answer to a PUSH: the service has all gradients of the round and waits for COMMIT
    ROWS = 64  # in a PUSH to a sparse service: the array also asks for rows, which the answer contains


# the bits of the header of a PUSH that are known before it arrives: the sender chooses only these two flags, the number
# of samples and the tag
PUSH_MASK = _HEADER.pack(
    b"\xff" * 4,
    (1 << 16) - 1,
    (1 << 8) - 1,
    (1 << 8) - 1 & ~(MessageFlag.CHECKPOINT | MessageFlag.KEEP),
    b"\xff" * 8,
    -1,
    (1 << 32) - 1,
    (1 << 64) - 1,
    -1,
    (1 << 64) - 1,
    (1 << 32) - 1,
    0,
    _NO_TAG,
)
# the flags and the samples of a PUSH, without the rest of its header
PUSH_FIELDS = struct.Struct("<7xB44xI")
# the fields of an answer's header that are those of the request
ANSWER_ECHO = _HEADER.pack(bytes(4), 0, 0, 0, bytes(8), -1, 0, (1 << 64) - 1, 0, 0, 0, 0, _NO_TAG)
SEQUENCE_AT = _COUNTS_AT  # place of the sequence in a header
_ALL_FLAGS = 2 * MessageFlag.ROWS - 1
_OPS = {int(op): op for op in Op}


class ProtocolError(Exception):
    """A message that is malformed."""


class VersionError(ProtocolError):
    """A message of another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the message is of protocol version {version}, this program speaks version {VERSION}")
        self.version = version


class Message(NamedTuple):
    """One parsed message.

    `payload`: the bytes of the message's array. A received message has at most one buffer. A message to send may have
    any number of buffers, which are sent one after the other without a copy.
    """

    op: Op
    session: bytes
    trainer: int
    sequence: int
    argument: int = 0
    flags: int = MessageFlag.NONE
    note: Mapping[str, Any] = NOTHING
    payload: Sequence[Buffer] = ()
    piece: int = 0
    samples: int = 0


def count_pieces(length: int) -> int:
    """Return the number of pieces of an array of `length` bytes; an empty array has one piece."""
    return max(1, -(-length // PIECE_BYTES))


def piece_elements() -> int:
    """Return the number of float32 elements of a piece; the last piece of an array may have fewer."""
    return PIECE_BYTES // 4


def cut(array: memoryview, piece: int) -> memoryview:
    """Return a piece of the bytes of an array."""
    return array[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]


def cut_local(shared: memoryview, message: Message) -> memoryview:
    """Return the payload of a message with the flag LOCAL; the payload never reaches into the next piece."""
    return cut(shared, message.piece)[: max(message.argument, 0)]


def session_of(job: str, attempt: str) -> bytes:
    """Return the 8 bytes that identify job and attempt in every message."""
    return hashlib.sha256(f"{len(job)}:{job}{attempt}".encode()).digest()[:8]


def encode(message: Message, key: bytes = b"") -> list[Buffer]:
    """Return the frames of a message; payload arrays are not copied.

    Raises: ProtocolError: the message exceeds the limits of the other side.
    """
    note = dump_note(message.op, message.flags, message.note)
    length = 0
    for part in message.payload:
        length += part.nbytes if isinstance(part, memoryview) else len(part)
    return [pack_header(message, note, length, key), note, *message.payload]


def dump_note(op: Op, flags: int, note: Mapping[str, Any]) -> bytes:
    """Return the bytes of the note of a message.

    Raises: ProtocolError: the note exceeds the limits of the other side.
    """
    try:
        return notes.dump(note, _depth_of(op, flags)) if note else b""
    except notes.NoteError as exc:
        raise ProtocolError(f"{op.name}: {exc}") from exc


def pack_header(message: Message, note: bytes, length: int = 0, key: bytes = b"") -> bytes:
    """Return the header of a message with these bytes of a note, and with a payload of this length.

    Raises: ProtocolError: the lengths exceed the limits of the other side.
    """
    op, session, trainer, sequence, argument, flags, _, _, piece, samples = message
    _check_limits(op, len(note), length)
    values = (MAGIC, VERSION, op, flags, session, trainer, len(note), sequence, argument, length, piece, samples)
    header = _HEADER.pack(*values, _NO_TAG)
    # without the payload, because signing arrays is slow (docs/security.md has the times)
    return header[:-_TAG_BYTES] + _tag(header, note, key) if key else header


def write_counts(
    heads: bytearray, at: int, sequence: int, argument: int, length: int, piece: int, samples: int
) -> None:
    """Set the fields of a header that differ between requests and between pieces; the header begins at byte `at`."""
    _COUNTS.pack_into(heads, at + _COUNTS_AT, sequence, argument, length, piece, samples)


def sign_header(heads: bytearray, at: int, note: bytes, key: bytes) -> None:
    """Sign the header that begins at byte `at`, with its note."""
    end = at + HEADER_BYTES
    heads[end - _TAG_BYTES : end] = _tag(heads[at:end], note, key)


def pack_push(session: bytes, trainer: int, sequence: int, length: int, *, is_local: bool) -> bytes:
    """Return the header of a PUSH of one piece as far as it is known before the PUSH arrives, see PUSH_MASK."""
    flags, argument, payload = (MessageFlag.LOCAL, length, 0) if is_local else (MessageFlag.NONE, 0, length)
    return _HEADER.pack(MAGIC, VERSION, Op.PUSH, flags, session, trainer, 0, sequence, argument, payload, 0, 0, _NO_TAG)


@functools.lru_cache(maxsize=64)
def pack_answer(op: Op, flags: int, session: bytes, argument: int, length: int) -> bytes:
    """Return the header of an answer of one piece, without the fields of ANSWER_ECHO and without the tag."""
    return pack_header(Message(op, session, 0, 0, argument, flags), b"", length)


def read_push(header: bytes, payload: Sequence[Buffer]) -> Message:
    """Return the PUSH with a header that equals the result of `pack_push` under PUSH_MASK."""
    _, _, _, flags, session, trainer, _, sequence, argument, _, piece, samples, _ = _HEADER.unpack(header)
    return Message(Op.PUSH, session, trainer, sequence, argument, flags, NOTHING, payload, piece, samples)


def is_signed(frames: Sequence[Buffer], key: bytes) -> bool:
    """Return whether a valid message was signed with this key; with an empty key the result is True."""
    if not key:
        return True
    return len(frames) > 1 and hmac.compare_digest(bytes(frames[0][-_TAG_BYTES:]), _tag(frames[0], frames[1], key))


def _tag(header: Buffer, note: Buffer, key: bytes) -> bytes:
    tag = hashlib.blake2b(header[:-_TAG_BYTES], digest_size=_TAG_BYTES, key=key)
    tag.update(note)
    return tag.digest()


def measure(head: bytes) -> tuple[int, int] | None:
    """Return the lengths of the note and of the payload after a header, or None if the header is incomplete.

    Raises: VersionError, ProtocolError: the bytes are not a header of this protocol, or exceed the limits.
    """
    if head[:4] != MAGIC[: len(head)]:
        raise ProtocolError(f"the message begins with {head[:4]!r} instead of {MAGIC!r}")
    if len(head) >= 8 and (version := int.from_bytes(head[4:6], "little")) != VERSION:
        raise VersionError(version)
    if len(head) < HEADER_BYTES:
        return None
    values = _HEADER.unpack(head)
    _check_limits(values[2], values[6], values[9])
    return values[6], values[9]


def peek(header: Buffer) -> tuple[int, int, int, int]:
    """Return op, flags, sequence and piece of a header that `measure` has accepted."""
    values = _HEADER.unpack(header)
    return values[2], values[3], values[7], values[10]


def decode(frames: Sequence[Buffer]) -> Message:
    """Return the message of some frames, which may be invalid.

    Raises: VersionError: the message has another version. ProtocolError: the message is malformed.
    """
    if not frames:
        raise ProtocolError("the message is empty")
    # one byte more than a header shows that a frame is too long, without a copy of all of it
    header = bytes(frames[0][: HEADER_BYTES + 1])
    if header[:4] != MAGIC:
        raise ProtocolError(f"the message begins with {header[:4]!r} instead of {MAGIC!r}")
    # before the length, because another version may have a longer header
    if len(header) >= 6 and (version := int.from_bytes(header[4:6], "little")) != VERSION:
        raise VersionError(version)
    if len(header) != HEADER_BYTES:
        raise ProtocolError(f"the header has {_byte_length(frames[0])} bytes instead of {HEADER_BYTES}")
    (_, _, number, flags, session, trainer, note_length, sequence, argument, length, piece, samples, _) = (
        _HEADER.unpack(header)
    )
    op = _OPS.get(number)
    if op is None:
        raise ProtocolError(f"the message has the unknown op {number}")
    if flags & ~_ALL_FLAGS:
        raise ProtocolError(f"the message has unknown flags {flags:#x}")
    payload = frames[2:]
    _check_limits(op, note_length, length)
    if len(frames) < 2 or _byte_length(frames[1]) != note_length:
        raise ProtocolError(f"the note does not have the declared {note_length} bytes")
    if sum(_byte_length(part) for part in payload) != length:
        raise ProtocolError(
            f"the payload has {sum(map(_byte_length, payload))} bytes instead of the declared {length} bytes"
        )
    note = _parse_note(frames[1], _depth_of(op, flags)) if note_length else {}
    return Message(op, session, trainer, sequence, argument, flags, note, payload, piece, samples)


def find_fault(welcome: Message, job: str, attempt: str) -> str | None:
    """Return what is wrong with the answer to a hello, or None if its sender is a server of this job."""
    note = welcome.note
    if welcome.op == Op.ERROR:
        return str(note.get("message", "it refuses without a reason"))
    if welcome.op != Op.HELLO or not welcome.flags & MessageFlag.ANSWER:
        return f"it answers a hello with {welcome.op.name}"
    if (note.get("job"), note.get("attempt")) != (job, attempt):
        return (
            f"it belongs to job {note.get('job')!r}, attempt {note.get('attempt')!r}, "
            f"not to job {job!r}, attempt {attempt!r}"
        )
    return None


def _byte_length(part: Buffer) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)


def _check_limits(op: int, note: int, payload: int) -> None:
    most = MAX_NOTE_BYTES if op in LARGE_NOTES else SMALL_NOTE_BYTES
    if note > most:
        raise ProtocolError(f"a note of {note} bytes is over the limit of {most}")
    if payload > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a payload of {payload} bytes is over the limit of {MAX_PAYLOAD_BYTES}")


def _depth_of(op: int, flags: int) -> int:
    """Return the maximum nesting depth of a note; it is smaller if another note will contain parts of this note."""
    return notes.MAX_DEPTH - (4 if op in _TAKEN_OVER and not flags & MessageFlag.ANSWER else 0)


def _parse_note(frame: Buffer, depth: int) -> Mapping[str, Any]:
    try:
        return notes.parse(bytes(frame), depth)
    except notes.NoteError as exc:
        raise ProtocolError(str(exc)) from exc

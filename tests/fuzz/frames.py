"""Makes the messages of an attacker: random bytes, messages by the layout of the header, and changed real messages.

All random choices come from one `random.Random`, so a case can be repeated from its seed.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from random import Random

from pserver.wire import protocol
from pserver.wire.protocol import Message, Op

HEADER = protocol.HEADER_BYTES
EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
FORGED = "\nI0101 00:00:00.000000     1 a.cpp:1] forged"
TEXTS = ["", "w", "\0", FORGED, "\x1b[2J\x1b[31m", "\ud800", "é" * 9, "x" * 3000]
RAW_NOTES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"a":NaN,"b":-Infinity,"c":1e999}',
    b'{"a":1,"a":2}',
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":1e400}',
    b'{"a":-0.0}',
    b'{"\\ud800":"\\udfff"}',
    b"\xef\xbb\xbf{}",
    '{"a":1}'.encode("utf-16"),
    b'{"a":"\xff"}',
    b"{" * 2000,
    b'{"a":' * 3000,
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":"' + b"\\u0000" * 500 + b'"}',
]


# JSON values that may break a program; each replaces the value of a field of a note
RAW_VALUES = [
    *(opening * depth + b"0" + closing * depth for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"))
      for depth in (31, 33, 490, 981, 5000)),
    b"[" + b"0," * 10_000 + b"0]",
    b"[" + b"[]," * 10_000 + b"[]]",
    b"{" + b",".join(b'"%d":0' % number for number in range(3000)) + b"}",
    *(sign + digits for sign in (b"", b"-") for digits in (b"0", b"1", b"9" * 19, b"9" * 20, b"9" * 5000)),
    b"2147483648", b"18446744073709551616", b"4611686018427387904", b"9223372036854775807", b"18446744073709551615",
    b"0.5", b"-0.0", b"1e308", b"1e999", b"-1e999", b"1e-999", b"NaN", b"Infinity", b"-Infinity",
    b"null", b"true", b"false", b"[]", b"{}", b"[[]]", b"[null]", b'""', b'"w"', b'"' + b"x" * 5000 + b'"',
    b'{"a":1,"a":2}', b'[{"a":{"b":[],"b":{}}}]', b'"\\ud800"', b'["\\udfff"]', b'{"\\ud800":0}',
    b'"\\u0000"', b'"\\n\\u001b[2J"', b'"/proc/self/mem"', b'"\xff"', b'"\xed\xa0\x80"',
]  # fmt: skip
OWN = {"place": {"number": 0}, "random": ["x", [1, 2]], "sums": {"test": "0x1p0"}}
_FIELDS = ["name", "size", "learning_rate", "momentum", "decay_rate", "is_static", "row_width"]
NOTES: dict[Op, dict[str, object]] = {
    Op.HELLO: {
        "job": "job",
        "attempt": "1",
        "num_trainers": 1,
        "dtype": "float32",
        "parameters": "0123456789abcdef",
        "shape": [2, 7],
        "settings": "s",
        "service": 0,
        "services": 1,
        "memory": {"pid": 1, "file": 3, "length": 28, "token": "00" * 16},
    },
    Op.INITIALISE: {
        "fields": _FIELDS,
        "parameters": [["w", 5, 1.0, 0.0, 0.0, False, 0], ["b", 2, 1.0, 0.0, 0.0, False, 0]],
        "optimization": {"learning_method": "momentum", "learning_rate": 0.1, "max_average_window": None},
        "by_rows": False,
        "counters": {"samples": 0},
        "arrays": ["own.0", "values"],
        "trainers": [OWN],
        "blobs": {"own.0": 8},
    },
    Op.FINISH_PASS: {"own": OWN},
    Op.CHECKPOINT: {"own": OWN},
    Op.CHECKPOINT_BLOB: {"bytes": 8},
    Op.SAVE: {"directory": "/nowhere"},
    Op.LOAD: {"directory": "/nowhere"},
    Op.PING: {"epoch": 2, "members": [0, 1]},
    Op.PUSH: {"bytes": 28, "epoch": 2, "round": 1, "pass": 0, "push": 1},
    Op.ENTER: {"epoch": 2, "members": [0, 1]},
    Op.COMMIT: {"epoch": 2, "round": 1, "view": 2},
    Op.FETCH: {"bytes": 28},
    Op.ABORT: {"reason": "no more data"},
}
_MARK = "the place of a raw value"


def texts_with(note: Mapping[str, object], raw: bytes) -> Iterator[bytes]:
    """Yield the JSON of a note in which this text is the value of a field, or of an additional field."""
    for key in [*note, "more"]:
        yield json.dumps({**note, key: _MARK}).encode().replace(json.dumps(_MARK).encode(), raw)
        value = note.get(key)
        if isinstance(value, Mapping):
            for inner in value:
                made = {**note, key: {**value, inner: _MARK}}
                yield json.dumps(made).encode().replace(json.dumps(_MARK).encode(), raw)
        if isinstance(value, list) and value:
            made = {**note, key: [_MARK, *value[1:]]}
            yield json.dumps(made).encode().replace(json.dumps(_MARK).encode(), raw)
    yield raw


def encode(one: Message, key: bytes = b"", text: bytes | None = None) -> list[bytes]:
    """The frames of a message with any note, or any text in its place; they are signed if a key is given."""
    text = (json.dumps(one.note).encode() if one.note else b"") if text is None else text
    header = bytearray(protocol.encode(one._replace(note={}))[0])
    header[20:24] = len(text).to_bytes(4, "little")
    if key:
        header[-8:] = protocol._tag(bytes(header), text, key)
    return [bytes(header), text, *(bytes(part) for part in one.payload)]


def number(random: Random) -> int:
    """An integer that may break a program: a limit of a type, a number near a limit, or any number."""
    edge = random.choice(EDGES)
    return random.choice([edge, edge - 1, edge + 1, -edge, random.getrandbits(random.randrange(1, 70))])


def value(random: Random, depth: int = 0) -> object:
    """A JSON value of any type."""
    kind = random.randrange(9 if depth < 4 else 6)
    if kind == 6:
        return [value(random, depth + 1) for _ in range(random.randrange(5))]
    if kind == 7:
        return {random.choice(TEXTS): value(random, depth + 1) for _ in range(random.randrange(5))}
    plain = [None, True, number(random), random.uniform(-1e30, 1e30), float("nan"), random.choice(TEXTS)]
    return plain[kind % 6]


def note(random: Random, like: dict[str, object] | None = None) -> dict[str, object]:
    """A note: some keys of a real note with values of other types, or any value."""
    made = dict(like or {})
    for key in list(made):
        if random.random() < 0.3:
            made[key] = value(random)
        elif random.random() < 0.1:
            del made[key]
    for _ in range(random.randrange(3)):
        made[random.choice([*made, *TEXTS])] = value(random)
    return made


def message(random: Random, session: bytes = b"", like: dict[str, object] | None = None) -> Message:
    """A message that can be parsed, with any op, numbers and note."""
    return Message(
        random.choice(list(Op)),
        session if session and random.random() < 0.8 else random.randbytes(8),
        random.choice([-1, 0, 1, 2, random.randrange(-(2**31), 2**31)]),
        random.choice([0, 1, 2, 3, 4, 5, number(random) % 2**64]),
        random.choice([0, 1, 2, 16, (number(random) + 2**63) % 2**64 - 2**63]),
        random.choice([0, 0, 0, random.randrange(16)]),
        note(random, like) if random.random() < 0.6 else {},
        [random.randbytes(random.choice([0, 1, 4, 16, 28, 1000])) for _ in range(random.choice([0, 0, 1, 1, 2, 4]))],
        random.choice([0, 0, 1, number(random) % 2**32]),
        random.choice([0, 10, number(random) % 2**32]),
    )


# ----- Changes of a message; each function gets the frames and the index of one frame -----


def change_field(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    """Put limits of number types into fields of the header."""
    header = frames[0]
    for _ in range(random.randrange(1, 4)):
        size = random.choice([1, 2, 4, 8])
        at = random.randrange(0, max(1, len(header) - size + 1))
        header[at : at + size] = (number(random) % 2 ** (8 * size)).to_bytes(size, "little")


def flip_bit(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    if frame:
        frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)


def cut_off(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    del frame[random.randrange(len(frame) + 1) :]


def lengthen(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    frame += random.randbytes(random.choice([1, 2, 64]))


def insert(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    frames.insert(random.randrange(len(frames) + 1), bytearray(random.randbytes(random.randrange(70))))


def remove(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    frames.remove(frame)


def shuffle(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    random.shuffle(frames)


def repeat(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    frames += [bytearray(frame)] * random.randrange(8)


def replace_note(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    if len(frames) > 1:
        frames[1] = bytearray(random.choice(RAW_NOTES) if random.random() < 0.5 else bad_json(random))
        mend_length(frames)


def break_note(random: Random, frames: list[bytearray], frame: bytearray) -> None:
    if len(frames) > 1 and frames[1]:
        at = random.randrange(len(frames[1]))
        frames[1][at : at + 1] = random.choice([b"", b"\\", b'"', b"{", b"}", b"\0", b"\n", b"9" * 50])
        mend_length(frames)


def mend_length(frames: list[bytearray]) -> None:
    """Write the note's length into the header, so that the server parses the note."""
    if len(frames[0]) == HEADER:
        struct.pack_into("<I", frames[0], 20, len(frames[1]))


CHANGES = [
    change_field,
    flip_bit,
    cut_off,
    lengthen,
    insert,
    remove,
    shuffle,
    repeat,
    replace_note,
    break_note,
]


def mutate(random: Random, whole: list[bytes]) -> list[bytes]:
    """Return the frames of a real message with a change of bytes, lengths, order or number of frames."""
    frames = [bytearray(frame) for frame in whole]
    for _ in range(random.randrange(1, 4)):
        if frames:
            random.choice(CHANGES)(random, frames, random.choice(frames))
    return [bytes(frame) for frame in frames]


def bad_json(random: Random) -> bytes:
    """A note in JSON, perhaps with one changed byte."""
    text = bytearray(json.dumps(note(random)).encode())
    if random.random() < 0.5:
        text[random.randrange(len(text))] = random.randrange(256)
    return bytes(text)


def frames(random: Random, seeds: list[list[bytes]]) -> list[bytes]:
    """Return the next frames of an attacker: random bytes, a made message, or a changed real message."""
    kind = random.random()
    if kind < 0.05:
        return [random.randbytes(random.randrange(100)) for _ in range(random.randrange(9))]
    if kind < 0.1:
        return [b"PDLP" + random.randbytes(HEADER - 4), *(random.randbytes(9) for _ in range(random.randrange(3)))]
    if kind < 0.5:
        made = encode(message(random))
        return made if random.random() < 0.3 else mutate(random, made)
    return mutate(random, random.choice(seeds))

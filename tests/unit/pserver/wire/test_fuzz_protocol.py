"""The decoder against 10,000 hostile messages (nightly 100,000): a message within its limits, or ProtocolError."""

from pathlib import Path
from random import Random

import pytest
from fuzz import frames, seeds
from fuzz.__main__ import TESTS

from pserver.wire import notes, protocol
from pserver.wire.protocol import Message, MessageFlag, Op, ProtocolError

SESSION = protocol.session_of("job", "1")
KEY = b"the key of a connection"
HELLO = {"job": "job", "attempt": "1", "num_trainers": 2, "dtype": "float32", "shape": [2, 7], "memory": None}
SEEDS = [
    [bytes(frame) for frame in protocol.encode(message, KEY)]
    for message in (
        Message(Op.HELLO, SESSION, 1, 1, note=HELLO),
        Message(Op.PUSH, SESSION, 1, 7, 2, payload=[b"\0\0\x80\x3f" * 9], piece=3, samples=10),
        Message(Op.INITIALISE, SESSION, 0, 2, note={"fields": ["name", "size"], "parameters": [["w", 9]]}),
        Message(
            Op.ERROR,
            SESSION,
            1,
            7,
            flags=MessageFlag.ANSWER | MessageFlag.FATAL,
            note={"message": "m", "exit_code": 75},
        ),
    )
]


def try_one(bad):
    """Decode; what is accepted is within the limits and comes back the same from encode."""
    try:
        message = protocol.decode(bad)
    except ProtocolError:
        return False
    assert sum(map(len, message.payload)) <= protocol.MAX_PAYLOAD_BYTES
    assert isinstance(message.note, dict)
    again = protocol.decode(protocol.encode(message))
    assert repr(again) == repr(message)  # by repr: NaN is not equal to itself
    return True


def test_what_is_sent_decodes_or_is_refused_whatever_it_is():
    """`make fuzz` goes on with other seeds."""
    send_all(seeds(1)[0], 10_000)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds(4))
def test_what_is_sent_decodes_or_is_refused_also_when_more_of_it_comes(seed):
    send_all(seed, 25_000)


def send_all(seed, number):
    random = Random(seed)
    accepted = 0
    for count in range(number):
        bad = frames.frames(random, SEEDS)
        try:
            accepted += try_one(bad)
        except Exception as exc:
            raise AssertionError(f"message {count} of seed {seed}: {[frame[:200] for frame in bad]}") from exc
    assert 0.08 * number < accepted < 0.92 * number  # a generator of which all or nothing is refused tests nothing


def test_a_signature_covers_every_bit_of_header_and_note():
    for whole in SEEDS:
        assert protocol.is_signed(whole, KEY)
        for part in (0, 1):
            for bit in range(8 * len(whole[part])):
                frame = bytearray(whole[part])
                frame[bit // 8] ^= 1 << bit % 8
                changed = [*whole[:part], bytes(frame), *whole[part + 1 :]]
                assert not protocol.is_signed(changed, KEY), (part, bit)


def test_a_signature_of_another_connection_or_message_is_worth_nothing():
    others = [b"the key of another one", KEY[:-1], b"\0" * 32]
    for whole in SEEDS:
        assert not any(protocol.is_signed(whole, other) for other in others)
    unsigned = protocol.encode(Message(Op.PING, SESSION, 1, 1))
    assert (
        not protocol.is_signed(unsigned, KEY) and not protocol.is_signed([], KEY) and protocol.is_signed(unsigned, b"")
    )
    for one in SEEDS:
        for other in SEEDS:
            mixed = [one[0][:-8] + other[0][-8:], *one[1:]]
            assert protocol.is_signed(mixed, KEY) is (one is other)


def test_sizes_are_refused_before_the_note_is_read(monkeypatch):
    def parse(_):
        raise AssertionError("the note was parsed")

    monkeypatch.setattr(notes, "parse", parse)
    whole = [bytearray(frame) for frame in SEEDS[0]]
    for offset, size in ((20, 4), (40, 8)):
        header = bytearray(whole[0])
        header[offset : offset + size] = b"\xff" * size
        with pytest.raises(ProtocolError, match="limit"):
            protocol.decode([header, *whole[1:]])


def test_every_test_of_make_fuzz_is_there():
    root = Path(__file__).parents[3]
    assert [name for name in TESTS if not (root / name).is_file()] == []
